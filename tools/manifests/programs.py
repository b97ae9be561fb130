"""Which of our programs a container runs, according to our own command line."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from typer.exceptions import TyperException
from typer.main import get_group

from cli.main import app

if TYPE_CHECKING:
    from collections.abc import Mapping

_SERVER = "runner.lifecycle"


def runs_a_server(container: Mapping[str, Any]) -> bool:
    """Whether it is a runner, which answers HTTP. Raises ValueError for programs that do not exist."""
    words = _words(container)
    if not words:
        return True  # the image's own command
    if words[0] == "cog-triton":
        joins_at(container)
        return False
    if words[:2] != ["python", "-m"] or importlib.util.find_spec(words[2]) is None:
        raise ValueError(f"there is no program {' '.join(words)}")
    return words[2] == _SERVER


def joins_at(container: Mapping[str, Any]) -> str:
    """The address that `cog-triton join` gets. Raises ValueError for arguments that it does not accept."""
    words = _words(container)
    commands = get_group(app).commands
    if words[:2] != ["cog-triton", "join"] or "join" not in commands:
        raise ValueError(f"{' '.join(words)}: that is not how a host joins")
    try:
        return str(commands["join"].make_context("join", words[2:]).params["address"])
    except TyperException as wrong:
        raise ValueError(f"{' '.join(words)}: {wrong}") from None


def _words(container: Mapping[str, Any]) -> list[str]:
    return [*container.get("command", ()), *container.get("args", ())]
