"""What the command line prints: text for people, in colour where that is wanted, or JSON for programs."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from shared.errors import CogTritonError

AS_JSON = typer.Option(
    "--json", help="For programs: one JSON document on stdout, also for errors with a code."
)
"""The option of every command that has a document for programs."""


def say(text: str, colour: str | None = None, *, err: bool = False) -> None:
    """Print a line; in colour at a terminal, unless NO_COLOR says otherwise (https://no-color.org)."""
    typer.secho(text, fg=colour, err=err, color=False if os.environ.get("NO_COLOR") else None)


def say_json(content: Any) -> None:
    """Print one JSON document."""
    typer.echo(json.dumps(content, indent=2))


def say_error(error: CogTritonError) -> None:
    """One line on stderr; for a program that asked for JSON an object on stdout."""
    if "--json" in sys.argv[1:]:
        say_json({"error": {"code": error.code, "name": error.name(), "text": str(error)}})
    else:
        say(str(error), "red", err=True)


def counted(number: int, what: str) -> str:
    """`1 error`, `2 errors`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
