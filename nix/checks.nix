# `nix flake check`: what can be said of the images without running them.
{
  pkgs,
  images,
  mkModel,
}:
{ }
