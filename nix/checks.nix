# `nix flake check`: what can be checked without running images, on the one that anyone can build.
{
  pkgs,
  images,
  mkImage,
  mkModel,
  parts,
}:
let
  runner = images.cog-triton-runner-cpu;

  model = mkModel {
    inherit runner;
    env.COG_WEIGHTS = "https://example.com/engine.tar";
  };

  check =
    name: script:
    pkgs.runCommand "check-${name}" { nativeBuildInputs = [ pkgs.python3 ]; } ''
      ${script}
      touch "$out"
    '';
in
{
  contents-are-listed = check "contents-are-listed" ''
    ${runner} sbom | python3 -c '
    import json, sys
    names = {package["name"] for package in json.load(sys.stdin)["packages"]}
    assert {"cog", "ctranslate2", "libc6", "nvidia-pytriton"} <= names, names
    '
  '';

  # What vLLM's runners compile with, without vLLM itself; tests/images has it compile.
  compiler = mkImage {
    name = "cog-triton-compiler";
    layers = [
      parts.base
      parts.python
      parts.compiler
    ];
    config = {
      User = "cog";
      Env.PATH = "/usr/bin";
      Labels = { };
    };
  };

  model-has-the-runners-layers = check "model-has-the-runners-layers" ''
    layers() { "$1" inspect --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["layers"])'; }
    [ "$(layers ${runner})" = "$(layers ${model})" ]
    [ "$(${runner} digest)" != "$(${model} digest)" ]
  '';
}
