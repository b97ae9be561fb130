# The programs of nix/oci with the compressor of the locks, and the derivations that run them.
{
  pkgs,
  fetch,
  sources,
}:
let
  python = pkgs.python3;

  compressor = pkgs.runCommand "compressor" { nativeBuildInputs = [ python ]; } (
    "mkdir \"$out\"\n"
    + builtins.concatStringsSep "\n" (
      map ({ path, ... }: "python3 -m zipfile -e ${path} \"$out\"") (fetch.wheels "tools").packages
    )
  );
in
{
  inherit python;

  library = [
    sources.programs
    compressor
  ];

  # Run a module of nix/oci: `python3 -m oci.MODULE SPEC OUT ARGUMENTS`.
  run =
    {
      name,
      module,
      spec,
      programs ? sources.programs,
      arguments ? [ ],
    }:
    pkgs.runCommand name {
      nativeBuildInputs = [ python ];
      spec = builtins.toJSON spec;
      passAsFile = [ "spec" ];
      PYTHONPATH = "${programs}:${compressor}";
      PYTHONDONTWRITEBYTECODE = "1";
    } ''python3 -m oci.${module} "$specPath" "$out" ${toString arguments}'';

  # The engine bridge; its bytes depend only on its sources and the compiler.
  bridge = pkgs.runCommand "engine-bridge" { nativeBuildInputs = [ python ]; } ''
    export PYTHONPATH=${sources.layerPrograms} PYTHONDONTWRITEBYTECODE=1 HOME="$PWD"
    ${builtins.concatStringsSep "\n" (
      map ({ path, ... }: "python3 -m oci.wheel ${path} compiler") (fetch.wheels "bridge").packages
    )}
    cd ${sources.bridge}
    python3 -m runner.bridge.build --zig-path "$OLDPWD/compiler" \
      --output "$out/engine_bridge/libtriton_engine_bridge.so"
  '';
}
