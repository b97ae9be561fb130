{
  description = "Stands in for nixpkgs where only the distribution's own programs are at hand";

  outputs =
    { self }:
    {
      legacyPackages.x86_64-linux = import ./packages.nix { };
    };
}
