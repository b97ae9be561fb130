"""A runner image, from `nix build` to a model of one's own in a registry, and back."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.containers, pytest.mark.usefixtures("docker")]


def test_the_image_is_built(user):
    user.types("export NIX_CONFIG='extra-experimental-features = nix-command flakes'")
    user.types("nix build .#cog-triton-runner-cpu")
    assert user.types("./result digest").text.startswith("sha256:")


def test_it_is_loaded(user):
    user.types("./result load")
    assert "cog-triton-runner-cpu" in user.types("docker images").text
