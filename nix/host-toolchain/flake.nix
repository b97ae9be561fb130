{
  description = "Stands in for nixpkgs where only the distribution's own programs are available";

  outputs =
    { self }:
    {
      legacyPackages.x86_64-linux = import ./packages.nix { };
    };
}
