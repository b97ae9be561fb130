"""What TensorRT-LLM's tools accept: argument tables, as data in arguments/.

They come from sources near 1.2.1, not from the tag itself: what is missing there may still exist.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Literal

from pydantic import BaseModel, ConfigDict


class Argument(BaseModel):
    """One argument of a tool; `name` is without its dashes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    type: Literal["str", "int", "float", "flag"]
    default: str | int | float | None = None
    choices: tuple[str, ...] = ()
    uncertain_choices: tuple[str, ...] = ()  # only known from some versions of the tool
    aliases: tuple[str, ...] = ()
    many: bool = False  # takes one value or more
    minimum: int | None = None
    path: Literal["model", "checkpoint", "output", "file"] | None = None
    deprecated: str | None = None  # what to do instead
    uncertain: bool = False  # only known from some versions of the tool

    @property
    def is_switch(self) -> bool:
        """Whether its values are `enable` and `disable`, perhaps among others."""
        return {"enable", "disable"}.issubset(self.choices)


class Table(BaseModel):
    """The arguments of one tool."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str
    arguments: tuple[Argument, ...]

    def find(self, name: str) -> Argument | None:
        """The argument of this name or alias."""
        return next((one for one in self.arguments if name in (one.name, *one.aliases)), None)

    def names(self) -> list[str]:
        """All names, without aliases."""
        return [one.name for one in self.arguments]


_CONVERTERS = ("llama", "gpt", "qwen")


@cache
def table(tool: str, example: str = "") -> Table:
    """The table of `tool`; convert_checkpoint.py has one per example (`llama`).

    For an example without one, the table holds what all of them have in common.
    """
    stem = tool.removesuffix(".py")
    if stem != "convert_checkpoint":
        return _load(stem)
    if example in _CONVERTERS:
        return _load(f"{stem}-{example}")
    first, *others = [_load(f"{stem}-{one}") for one in _CONVERTERS]
    shared = [one for one in first.arguments if all(other.find(one.name) for other in others)]
    return Table(source="", arguments=tuple(shared))


def _load(stem: str) -> Table:
    return Table.model_validate_json((files(__package__) / "arguments" / f"{stem}.json").read_text("utf-8"))
