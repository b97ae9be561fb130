"""The port of the HTTP API."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from shared.cog.server import port_number, refuse_used_port
from shared.errors import PortInUse, SettingInvalid

from .check import Check, Finding, ok, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEFAULT = "5000"


def _look() -> Iterator[Finding]:
    port = os.environ.get("PORT") or _DEFAULT
    try:
        number = port_number(port)
    except SettingInvalid:
        yield warning(f"PORT is {port!r}, which is not a port.", "Set PORT to a number from 1 to 65535.")
        return
    try:
        refuse_used_port(number)
        yield ok(f"Port {port} is free")
    except PortInUse:
        yield warning(
            f"Port {port} is taken by another program, or by a runner.",
            "If it is not a runner of yours, give `cog-triton serve` another --port.",
        )


CHECK = Check("port", "The port of the HTTP API", _look)
