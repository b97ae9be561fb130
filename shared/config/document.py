"""YAML text to plain JSON data, with the place of every value; what could surprise is refused."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from shared.errors import ConfigDuplicateKey, ConfigNotYaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_VALUES = 10_000
"""The most values in a config; an alias counts as everything it stands for."""

_MAX_BITS = 1024  # what Python refuses to print is far above that

MAX_DEPTH = 32
"""The most levels of nesting."""

Place = tuple[str | int, ...]
"""Where a value is: `("instantiate", "stop_sequences", 0)`."""

_TAG = "tag:yaml.org,2002:"
_JSON_TAGS = {_TAG + name for name in ("null", "bool", "int", "float", "str", "seq", "map")}
_MERGE = _TAG + "merge"


class Trap(NamedTuple):
    """What YAML 1.1 reads as another number than it looks like, and what to say instead of reading it."""

    tags: frozenset[str]
    written: re.Pattern[str]
    problem: str


_INT, _FLOAT = _TAG + "int", _TAG + "float"
TRAPS = (
    Trap(
        frozenset({_INT, _FLOAT}),
        re.compile(".*:", re.DOTALL),
        "YAML reads numbers with a colon in base 60; write it in quotes, or in full",
    ),
    Trap(
        frozenset({_INT}),
        re.compile(r"[-+]?0[0-7_]+", re.ASCII),
        "YAML reads whole numbers that begin with 0 in base 8; write it in quotes, or without that 0",
    ),
    Trap(
        frozenset({_INT}),
        re.compile(r"[-+]?0b[01_]+", re.ASCII),
        "YAML reads this as a number in base 2; write it in quotes, or in base 10",
    ),
)
_TOO_LARGE = "this is a number that is too large; if it is text, such as a revision, write it in quotes"


class Position(NamedTuple):
    """Where something is in the text, both counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Document:
    """The data of a config, and where each key, or list item, is."""

    data: dict[str, Any]
    positions: Mapping[Place, Position]

    def position(self, place: Place) -> Position:
        """The position of `place`, or of the nearest mapping or list around it that exists."""
        while place not in self.positions:
            place = place[:-1]
        return self.positions[place]


def parse(text: str, source: str) -> Document:
    """Read one YAML document whose top level is a mapping.

    Raises `ConfigNotYaml`, and `ConfigDuplicateKey` for a key that appears twice in one mapping.
    """
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        if not isinstance(root, yaml.MappingNode):
            found = "is empty" if root is None else "holds no mapping"
            raise ConfigNotYaml(
                source=source, reason=f"it {found}; it must consist of lines like `engine: mock`"
            )
        positions: dict[Place, Position] = {}
        for place, node in _walk((), root):
            if len(positions) == MAX_VALUES:
                raise _too_many(node)
            positions[place] = _position(node.start_mark)
        return Document(loader.construct_document(root), positions)
    except _Twice as error:
        raise ConfigDuplicateKey(
            source=source,
            key=error.key,
            first=error.first.line,
            second=error.second.line,
            position=error.second,
        ) from None
    except RecursionError:
        raise ConfigNotYaml(source=source, reason="it is nested too deeply") from None
    except yaml.MarkedYAMLError as error:
        position = _position(error.problem_mark) if error.problem_mark else Position(1, 1)
        reason = ": ".join(part for part in (f"line {position.line}", error.context, error.problem) if part)
        raise ConfigNotYaml(source=source, reason=reason, position=position) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        position = Position(line, error.position - text.rfind("\n", 0, error.position))
        reason = f"line {line}: a character is not allowed"
        raise ConfigNotYaml(source=source, reason=reason, position=position) from error


class _Twice(Exception):
    def __init__(self, key: str, first: Position, second: Position) -> None:
        super().__init__(key)
        self.key, self.first, self.second = key, first, second


class _Loader(yaml.SafeLoader):
    """JSON's types only: a date is text, and tags that stand for other types are refused."""

    yaml_constructors = {  # noqa: RUF012  PyYAML's own way to set a loader up
        tag: make for tag, make in yaml.SafeLoader.yaml_constructors.items() if tag in {*_JSON_TAGS, None}
    }
    yaml_implicit_resolvers = {  # noqa: RUF012  as PyYAML has it
        first: [(tag, pattern) for tag, pattern in resolvers if tag in {*_JSON_TAGS, _MERGE}]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.composed = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Stop early at a text with too many values: PyYAML is slow."""
        self.composed += 1
        node = super().compose_node(parent, index)
        if node is not None and self.composed > 2 * MAX_VALUES:  # keys are nodes too
            raise _too_many(node)
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Refuse keys that are not text, or appear twice."""
        mapping = super().compose_mapping_node(anchor)
        seen: dict[str, Position] = {}
        for key, _ in mapping.value:
            if key.tag not in {_TAG + "str", _MERGE}:
                raise _refusal(key, "a key must be text; write it in quotes")
            position = _position(key.start_mark)
            if key.value in seen:
                raise _Twice(key.value, seen[key.value], position)
            seen[key.value] = position
        return mapping

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Refuse what does not fit its tag (`!!int x`), and what JSON cannot hold."""
        for trap in TRAPS:
            if node.tag in trap.tags and trap.written.match(node.value):
                raise _refusal(node, trap.problem)
        try:
            value = super().construct_object(node, deep=deep)
            if isinstance(value, str):
                # JSON escapes a character beyond U+FFFF as two halves; one half alone is not a character.
                value = value.encode("utf-16", "surrogatepass").decode("utf-16")
        except (ValueError, LookupError) as error:
            raise _refusal(node, f"this is not a valid {node.tag.removeprefix(_TAG)}") from error
        if isinstance(value, float) and not math.isfinite(value):
            is_written_out = any(character.isdigit() for character in node.value)
            raise _refusal(node, _TOO_LARGE if is_written_out else "a number must be finite")
        if isinstance(value, int) and value.bit_length() > _MAX_BITS:
            raise _refusal(node, _TOO_LARGE)
        return value


# YAML 1.1 wants a dot and a sign in `1e-05`; JSON, and people who write it, do not.
_Loader.add_implicit_resolver(
    _TAG + "float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$", re.ASCII), list("-+0123456789")
)


def _position(mark: yaml.Mark) -> Position:
    return Position(mark.line + 1, mark.column + 1)


def _walk(place: Place, node: yaml.Node, key: yaml.Node | None = None) -> Iterator[tuple[Place, yaml.Node]]:
    """The key (in a list: the item) of every value under `node`, aliases followed each time."""
    yield place, key or node
    if len(place) > MAX_DEPTH:
        raise _refusal(node, f"it is nested deeper than {MAX_DEPTH} levels")
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            yield from _walk((*place, name.value), value, name)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _walk((*place, index), value)


def _too_many(node: yaml.Node) -> yaml.MarkedYAMLError:
    return _refusal(node, f"there are more than {MAX_VALUES} values")


def _refusal(node: yaml.Node, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
