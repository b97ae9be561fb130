"""A runner's image as `nix build` makes it, on a machine with a GPU but no container engine and little to carry."""
