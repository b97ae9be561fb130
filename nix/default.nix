# One scope; engine and SM are arguments.
{
  pkgs,
  locks,
  revision,
}:
let
  readJSON = path: builtins.fromJSON (builtins.readFile path);
  fetch = import ./fetch.nix { inherit pkgs locks readJSON; };
  sources = import ./sources.nix;
  tools = import ./tools.nix { inherit pkgs fetch sources; };
  # The GPU architectures that have runners, by engine.
  sms = {
    tensorrt-llm = [
      80
      86
      90
    ];
    vllm = [
      80
      86
      89
      90
      100
      120
    ];
  };
  version = builtins.head (
    builtins.match ".*VERSION = \"([^\"]+)\".*" (builtins.readFile ../shared/__init__.py)
  );
  steps = import ./steps.nix { inherit fetch sources tools; };
  parts = import ./layers.nix {
    inherit
      fetch
      sms
      sources
      steps
      tools
      version
      ;
  };
  inherit (import ./image.nix { inherit pkgs tools revision; }) mkImage mkModel;
  images = import ./images.nix {
    inherit
      fetch
      mkImage
      parts
      sms
      version
      ;
  };
in
{
  inherit images mkModel;
  checks = import ./checks.nix {
    inherit
      pkgs
      images
      mkImage
      mkModel
      parts
      ;
  };
}
