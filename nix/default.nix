# One scope; engine and SM are arguments.
{
  pkgs,
  locks ? ./locks,
  revision ? null,
}:
let
  readJSON = path: builtins.fromJSON (builtins.readFile path);
  fetch = import ./fetch.nix { inherit pkgs locks readJSON; };
  sources = import ./sources.nix;
  tools = import ./tools.nix { inherit pkgs fetch sources; };
  layers = import ./layers.nix { inherit fetch sources tools; };
  inherit (import ./image.nix { inherit pkgs tools revision; }) mkImage mkModel;
  images = import ./images.nix { inherit fetch layers mkImage; };
in
{
  inherit images mkModel;
  checks = import ./checks.nix { inherit pkgs images mkModel; };
}
