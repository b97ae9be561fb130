"""The directories that models, builds and engines are written to."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from runner.settings import Settings
from shared.errors import SettingInvalid
from shared.hub_settings import check_hub_settings
from shared.sizes import readable

from .check import Check, Finding, error, ok, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

_LITTLE = 20_000_000_000  # bytes; a model of 7 billion parameters takes 14 GB


def _look() -> Iterator[Finding]:
    try:
        temporary = Path(tempfile.gettempdir())
    except FileNotFoundError:  # only where none can be written to
        temporary = Path(os.environ.get("TMPDIR") or "/tmp")  # noqa: S108 - only looked at
    places = {
        "TMPDIR": ("what is built", temporary),
        **_hub(),
        "WEIGHTS_CACHE": ("engines that are served", Settings.from_environment(os.environ).weights_cache),
    }
    for variable, (what, place) in places.items():
        try:
            existing = _existing(place)
        except OSError as problem:
            yield error(
                f"{place} ({what}) cannot be used: {problem.strerror}.",
                f"Set {variable} to another directory.",
            )
            continue
        if not os.access(existing, os.W_OK | os.X_OK):
            yield error(f"{place} ({what}) cannot be written to.", f"Set {variable} to another directory.")
            continue
        free = shutil.disk_usage(existing).free
        if free < _LITTLE:
            yield warning(
                f"{place} ({what}) has {readable(free)} free: enough for small models only.",
                f"Free space there, or set {variable} to a directory on a larger disk.",
            )
        else:
            yield ok(f"{place} ({what}) has {readable(free)} free")


def _existing(place: Path) -> Path:
    """It, or the closest directory above it that is there already. Raises OSError."""
    for path in (place, *place.absolute().parents):
        if path.is_dir():
            return path
        if os.path.lexists(path):
            break
    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))


def _hub() -> dict[str, tuple[str, Path]]:
    try:
        check_hub_settings()
    except SettingInvalid:  # the check of the connection says so
        return {}
    from huggingface_hub import constants

    names = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")  # the older one is read where that is not set
    variable = next(filter(os.environ.get, names), "HF_HOME")
    return {variable: ("models from the hub", Path(constants.HF_HUB_CACHE))}


CHECK = Check("disk", "Room for models, builds and engines", _look)
