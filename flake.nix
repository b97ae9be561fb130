{
  description = "Images that turn a Hugging Face model into an engine, and serve it with NVIDIA Triton behind Cog's API";

  # Only programs of the build come from here (nix/host-toolchain stands in for it); nothing of it is in an image.
  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-25.11";

  outputs =
    { self, nixpkgs }:
    let
      system = "x86_64-linux";
      pkgs = nixpkgs.legacyPackages.${system};
      # Told by ci/nix with --impure: whoever overrides an input loses `self.rev`.
      told = builtins.getEnv "COG_TRITON_REVISION";
      revision = if told != "" then told else self.rev or null;
      # Other locks, with --impure: where stand-ins take the place of what a machine cannot reach.
      given = builtins.getEnv "COG_TRITON_LOCKS";
      locks = if given == "" then ./nix/locks else /. + given;
      scope = import ./nix { inherit pkgs locks revision; };
    in
    {
      lib = { inherit (scope) mkModel; };

      packages.${system} = scope.images // {
        default = scope.images.cog-triton-runner-cpu;
      };

      apps.${system} = builtins.mapAttrs (name: image: {
        type = "app";
        program = "${image}";
        meta.description = "Stream ${name} for `docker load`; its verbs are load, push, attach, layout, digest, inspect and sbom";
      }) scope.images;

      checks.${system} = scope.checks;
      formatter.${system} = pkgs.nixfmt;
      devShells.${system}.default = pkgs.mkShell {
        packages = [
          pkgs.python3
          pkgs.skopeo
          pkgs.nixfmt
        ];
      };
    };
}
