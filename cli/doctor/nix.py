"""Nix, which builds the images."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

from .check import Check, Finding, ok, warning
from .tool import answer

if TYPE_CHECKING:
    from collections.abc import Iterator

_OLDEST = (2, 18)  # that evaluates the nixpkgs of flake.lock (its lib/minver.nix)
_ASKED = ("--extra-experimental-features", "nix-command")


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
    if _is_too_old(version):
        yield warning(
            f"{version} is too old for nixpkgs, with which `nix build` makes the images.",
            f"Install Nix {'.'.join(map(str, _OLDEST))} or newer; or, where `nix` is Debian's "
            "(/usr/bin/nix), build as root with `ci/build-image NAME`, which then needs no nixpkgs.",
        )
        return
    if "(Determinate Nix " in version:  # both features are on for good, and not listed
        yield ok(version)
        return
    # Without nix-command, Nix does not even say what is enabled.
    told = _settings(*_ASKED) or ""
    lines = [line for line in told.splitlines() if line.startswith("experimental-features =")]
    missing = [] if "flakes" in "".join(lines).split() else ["flakes"]
    if _settings() is None:
        missing.append("nix-command")
    if missing:
        yield warning(
            f"{version}; not enabled: {', '.join(missing)}.",
            "Write `experimental-features = nix-command flakes` into ~/.config/nix/nix.conf.",
        )
    else:
        yield ok(version)


def _is_too_old(version: str) -> bool:
    number = re.search(r" (\d+)\.(\d+)\S*$", version)  # "nix (Determinate Nix 3.8.2) 2.30.1"
    return number is not None and (int(number[1]), int(number[2])) < _OLDEST


def _settings(*flags: str) -> str | None:
    """What Nix is set to; None when it refuses to say. The command was renamed in 2.20."""
    return answer("nix", *flags, "config", "show") or answer("nix", *flags, "show-config")


CHECK = Check("nix", "Nix, which builds the images", _look, of_hosts=True)
