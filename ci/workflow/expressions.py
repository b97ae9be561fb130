"""GitHub's expressions: `${{ needs.locks.outputs.filled == 'true' && !cancelled() }}`.

The grammar of GitHub's reference ("Evaluate expressions in workflows and actions"): literals, contexts
with `.name`, `['name']` and `.*`, the operators ! == != && || and the functions that the workflows use.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

_TOKEN = re.compile(
    r"\s*(?:(?P<string>'(?:[^']|'')*')|(?P<number>-?\d+(?:\.\d+)?)|(?P<name>[A-Za-z_][\w-]*)"
    r"|(?P<sign>==|!=|&&|\|\||[!().,*\[\]]))"
)
_LITERALS = {"true": True, "false": False, "null": None}


class ExpressionProblem(Exception):
    """An expression that GitHub would refuse, or that is unknown here."""


def fill(text: str, contexts: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]]) -> Any:
    """A value of a workflow with its expressions replaced; one that is only an expression keeps its type."""
    if alone := re.fullmatch(r"\s*\$\{\{((?:(?!\}\}).)*)\}\}\s*", text, re.DOTALL):
        return evaluate(alone[1], contexts, functions)
    return re.sub(
        r"\$\{\{(.*?)\}\}", lambda part: shown(evaluate(part[1], contexts, functions)), text, flags=re.DOTALL
    )


def evaluate(text: str, contexts: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]]) -> Any:
    """The value of one expression. Raises ExpressionProblem."""
    parser = _Parser(text, contexts, functions)
    value = parser.either()
    if parser.tokens:
        raise ExpressionProblem(f"{text.strip()}: unexpected {parser.tokens[0][1]}")
    return value


def shown(value: Any) -> str:
    """A value as text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, (dict, list)) else str(value)


def functions(root: Path) -> dict[str, Callable[..., Any]]:
    """The functions that depend only on their arguments and the files of `root`."""

    def hash_files(*patterns: str) -> str:
        found = sorted({path for pattern in patterns for path in root.glob(pattern) if path.is_file()})
        return hashlib.sha256(b"".join(path.read_bytes() for path in found)).hexdigest() if found else ""

    return {
        "contains": lambda whole, part: (
            part in whole if isinstance(whole, list) else shown(part) in shown(whole)
        ),
        "startsWith": lambda whole, start: shown(whole).lower().startswith(shown(start).lower()),
        "endsWith": lambda whole, end: shown(whole).lower().endswith(shown(end).lower()),
        "format": lambda text, *values: text.format(*map(shown, values)),
        "join": lambda values, joint=",": joint.join(map(shown, values)),
        "fromJSON": json.loads,
        "toJSON": lambda value: json.dumps(value, indent=2),
        "hashFiles": hash_files,
    }


class _Parser:
    def __init__(
        self, text: str, contexts: Mapping[str, Any], known: Mapping[str, Callable[..., Any]]
    ) -> None:
        self.text = text.strip()
        self.contexts = contexts
        self.known = known
        self.tokens: list[tuple[str, str]] = []
        place = 0
        while place < len(self.text):
            match = _TOKEN.match(self.text, place)
            if not match:
                raise ExpressionProblem(f"{self.text}: cannot be read from {self.text[place:]}")
            self.tokens.append((str(match.lastgroup), match[str(match.lastgroup)]))
            place = match.end()

    def take(self, *signs: str) -> str:
        """The next token if it is one of `signs`."""
        if self.tokens and self.tokens[0] in [("sign", sign) for sign in signs]:
            return self.tokens.pop(0)[1]
        return ""

    def need(self, sign: str) -> None:
        if not self.take(sign):
            raise ExpressionProblem(f"{self.text}: {sign} is missing")

    def either(self) -> Any:
        value = self.both()
        while self.take("||"):
            other = self.both()
            value = value or other
        return value

    def both(self) -> Any:
        value = self.compared()
        while self.take("&&"):
            other = self.compared()
            value = other if value else value
        return value

    def compared(self) -> Any:
        value = self.negated()
        while sign := self.take("==", "!="):
            value = (_plain(value) == _plain(self.negated())) == (sign == "==")
        return value

    def negated(self) -> Any:
        return not self.negated() if self.take("!") else self.part()

    def part(self) -> Any:
        """A value, and the members selected from it."""
        value = self.simple()
        while sign := self.take(".", "["):
            if sign == "." and self.take("*"):
                value = list((value or {}).values()) if isinstance(value, dict) else list(value or [])
                if self.take("."):
                    name = self.tokens.pop(0)[1]
                    value = [member.get(name) for member in value]
                continue
            name = self.tokens.pop(0)[1] if sign == "." else self.either()
            if sign == "[":
                self.need("]")
            value = value.get(name) if isinstance(value, dict) else None
        return value

    def simple(self) -> Any:
        if self.take("("):
            value = self.either()
            self.need(")")
            return value
        if not self.tokens or self.tokens[0][0] == "sign":
            raise ExpressionProblem(f"{self.text}: a value is missing")
        kind, text = self.tokens.pop(0)
        if kind == "string":
            return text[1:-1].replace("''", "'")
        if kind == "number":
            return float(text) if "." in text else int(text)
        if text in _LITERALS:
            return _LITERALS[text]
        if self.take("("):
            return self.called(text)
        if text not in self.contexts:
            raise ExpressionProblem(f"{self.text}: {text} is not known")
        return self.contexts[text]

    def called(self, name: str) -> Any:
        arguments = []
        while not self.take(")"):
            arguments.append(self.either())
            if self.tokens[:1] != [("sign", ")")]:
                self.need(",")
        if name not in self.known:
            raise ExpressionProblem(f"{self.text}: the function {name} is not known")
        return self.known[name](*arguments)


def _plain(value: Any) -> Any:
    """A value in the form for comparison: text without case, nothing as empty text."""
    if value is None:
        return ""
    return value.lower() if isinstance(value, str) else value
