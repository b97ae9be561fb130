"""Nix, which builds the images."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from .check import Check, Finding, ok, warning
from .tool import answer

if TYPE_CHECKING:
    from collections.abc import Iterator

_FEATURES = ("flakes", "nix-command")
_FLAGS = ("--extra-experimental-features", "nix-command flakes")


def _look() -> Iterator[Finding]:
    if shutil.which("nix") is None:
        yield warning(
            "Nix is not installed: images cannot be built here.", "Install Nix if you want to build images."
        )
        return
    version = answer("nix", "--version")
    if version is None:
        yield warning("Nix is installed, but does not answer.", "Try `nix --version`.")
        return
    # The command was renamed in 2.20.
    settings = answer("nix", *_FLAGS, "config", "show") or answer("nix", *_FLAGS, "show-config") or ""
    lines = [line for line in settings.splitlines() if line.startswith("experimental-features =")]
    missing = [feature for feature in _FEATURES if feature not in "".join(lines).split()]
    if missing:
        yield warning(
            f"{version}; not enabled: {', '.join(missing)}.",
            "Write `experimental-features = nix-command flakes` into ~/.config/nix/nix.conf.",
        )
    else:
        yield ok(version)


CHECK = Check("nix", "Nix, which builds the images", _look, of_hosts=True)
