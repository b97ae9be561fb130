"""A tool with its arguments, before they are checked and written out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from builder.engines.tensorrt_llm.commands import RunTool

if TYPE_CHECKING:
    from builder.engines.tensorrt_llm.commands import Tool, ToolStep
    from builder.engines.tensorrt_llm.tables import Table
    from shared.config.document import Place
    from shared.config.old import ArgumentValue

    Value = ArgumentValue | tuple[ArgumentValue, ...]


class Given(NamedTuple):
    """An argument's value, and its place in the config."""

    value: Value
    place: Place


def as_written(name: str, value: Value) -> str:
    """`--name value`; a flag has no value, a list one for every item."""
    return " ".join(_words(name, value))


def _words(name: str, value: Value) -> list[str]:
    match value:
        case None | True:
            return [f"--{name}"]
        case tuple():
            return [f"--{name}", *map(str, value)]
    return [f"--{name}", str(value)]


def in_config(name: str, value: Value) -> str:
    """`name: value`, as a config has it; a flag has no value."""
    match value:
        case None:
            return f"{name}:"
        case bool():
            return f"{name}: {str(value).lower()}"
        case tuple():
            return f"{name}: [{', '.join(map(str, value))}]"
    return f"{name}: {value}"


class ValueRefused(Exception):
    """An argument has a value that was reported as wrong: nothing follows from it."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the value of {name} is wrong")


@dataclass(slots=True)
class Call:
    """One step; its arguments by their current names, without dashes."""

    step: ToolStep
    tool: Tool
    script: str | None
    table: Table
    place: Place
    output_dir: str
    arguments: dict[str, Given] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)  # the arguments whose values were reported as wrong

    def value(self, name: str) -> Value:
        """The value given for `name`, else the tool's default. Raises ValueRefused."""
        if name in self.refused:
            raise ValueRefused(name)
        return self.arguments[name].value if name in self.arguments else self._default(name)

    def size(self, name: str) -> int:
        """The whole number given for `name`, else the default. Raises ValueRefused, also for what is not a
        number.
        """
        try:
            return int(str(self.value(name)))
        except ValueError:
            raise ValueRefused(name) from None

    def ranks(self) -> int:
        """How many ranks the engine of this checkpoint has. Raises ValueRefused."""
        context = self.size("cp_size") if self.table.find("cp_size") else 1
        return self.size("tp_size") * self.size("pp_size") * context

    def _default(self, name: str) -> Value:
        known = self.table.find(name)
        return known.default if known else None

    def set(self, name: str) -> bool:
        """Whether `name` is given. Raises ValueRefused."""
        if name in self.refused:
            raise ValueRefused(name)
        return name in self.arguments

    def written(self, name: str) -> str:
        """`--name value`, for an older name in the config the new one; a flag has no value. Raises
        ValueRefused.
        """
        return as_written(name, self.value(name))

    def place_of(self, name: str) -> Place:
        """The place where `name` is given, else the step."""
        return self.arguments[name].place if name in self.arguments else self.place

    def command(self) -> RunTool:
        """The command of the step: a flag is its name, a list the name and every item."""
        words: list[str] = []
        for name, (value, _) in self.arguments.items():
            if value is not False:  # of one that is unknown
                words += _words(name, value)
        return RunTool(self.step, self.tool, self.script, tuple(words), self.output_dir)


def shown(value: object) -> str:
    """As it stands in the config, and not as Python would write it."""
    match value:
        case None:
            return "without a value"
        case ():
            return "an empty list"
        case tuple():
            value = list(value)
        case bool():
            return str(value).lower()
    return repr(value) if len(repr(value)) <= 60 else "the config's value (too long to show)"
