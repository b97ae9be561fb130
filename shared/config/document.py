"""YAML text to plain JSON data, with the line of every value, and refusals instead of surprises."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from shared.errors import ConfigDuplicateKey, ConfigNotYaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_VALUES = 10_000
"""Most values in a config, an alias counted as all that it stands for."""

MAX_DEPTH = 32
"""Most levels of nesting."""

Place = tuple[str | int, ...]
"""Where a value stands: `("instantiate", "stop_sequences", 0)`."""

_TAG = "tag:yaml.org,2002:"
_JSON_TAGS = {_TAG + name for name in ("null", "bool", "int", "float", "str", "seq", "map")}
_MERGE = _TAG + "merge"


@dataclass(frozen=True, slots=True)
class Document:
    """The data of a config, and the line of each value, counted from 1."""

    data: dict[str, Any]
    lines: Mapping[Place, int]


def parse(text: str, source: str) -> Document:
    """Read one YAML document whose top level is a mapping.

    Raises `ConfigNotYaml`, and `ConfigDuplicateKey` for a key that stands twice in one mapping.
    """
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        if not isinstance(root, yaml.MappingNode):
            found = "is empty" if root is None else "holds no mapping"
            raise ConfigNotYaml(source=source, reason=f"it {found}; it must be lines like `engine: mock`")
        lines: dict[Place, int] = {}
        for place, node in _walk((), root):
            if len(lines) == MAX_VALUES:
                raise _too_many(node)
            lines[place] = node.start_mark.line + 1
        return Document(loader.construct_document(root), lines)
    except _Twice as error:
        raise ConfigDuplicateKey(
            source=source, key=error.key, first=error.first, second=error.second
        ) from None
    except RecursionError:
        raise ConfigNotYaml(source=source, reason="it is nested too deep") from None
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}" if error.problem_mark else None
        reason = ": ".join(part for part in (line, error.context, error.problem) if part)
        raise ConfigNotYaml(source=source, reason=reason) from error
    except yaml.reader.ReaderError as error:
        number = text.count("\n", 0, error.position) + 1
        raise ConfigNotYaml(source=source, reason=f"line {number}: a character is not allowed") from error


class _Twice(Exception):
    def __init__(self, key: str, first: int, second: int) -> None:
        super().__init__(key)
        self.key, self.first, self.second = key, first, second


class _Loader(yaml.SafeLoader):
    """JSON's types only: a date is text, and tags that stand for other types are refused."""

    yaml_constructors = {  # noqa: RUF012  PyYAML's own way to set a loader up
        tag: make for tag, make in yaml.SafeLoader.yaml_constructors.items() if tag in {*_JSON_TAGS, None}
    }
    yaml_implicit_resolvers = {  # noqa: RUF012  likewise
        first: [(tag, pattern) for tag, pattern in resolvers if tag in {*_JSON_TAGS, _MERGE}]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.composed = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Stop early at a text of too many values: PyYAML takes its time."""
        self.composed += 1
        node = super().compose_node(parent, index)
        if node is not None and self.composed > 2 * MAX_VALUES:  # keys are nodes too
            raise _too_many(node)
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Refuse keys that are not text, or stand twice."""
        mapping = super().compose_mapping_node(anchor)
        lines: dict[str, int] = {}
        for key, _ in mapping.value:
            line = key.start_mark.line + 1
            if key.tag not in {_TAG + "str", _MERGE}:
                raise _refusal(key, "a key must be text; write it in quotes")
            if key.value in lines:
                raise _Twice(key.value, lines[key.value], line)
            lines[key.value] = line
        return mapping

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Refuse what does not fit its tag (`!!int x`), and what JSON cannot hold."""
        try:
            value = super().construct_object(node, deep=deep)
            if isinstance(value, str):
                # JSON escapes a character beyond U+FFFF as two halves; one half alone is no character.
                value = value.encode("utf-16", "surrogatepass").decode("utf-16")
        except (ValueError, LookupError) as error:
            raise _refusal(node, f"this is not a valid {node.tag.removeprefix(_TAG)}") from error
        if isinstance(value, float) and not math.isfinite(value):
            raise _refusal(node, "a number must be finite")
        return value


# YAML 1.1 wants a dot and a sign in `1e-05`; JSON, and whoever writes it, does not.
_Loader.add_implicit_resolver(
    _TAG + "float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$", re.ASCII), list("-+0123456789")
)


def _walk(place: Place, node: yaml.Node) -> Iterator[tuple[Place, yaml.Node]]:
    """Every value under `node`, aliases followed each time they stand there."""
    yield place, node
    if len(place) > MAX_DEPTH:
        raise _refusal(node, f"it is nested deeper than {MAX_DEPTH} levels")
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _walk((*place, key.value), value)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _walk((*place, index), value)


def _too_many(node: yaml.Node) -> yaml.MarkedYAMLError:
    return _refusal(node, f"there are more than {MAX_VALUES} values")


def _refusal(node: yaml.Node, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
