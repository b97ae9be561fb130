"""Random structures that can constrain a text, each with a check of what satisfies it: JSON schemas,
expressions, choices.

All of them bound how much can be written, so that a model that writes anything comes to an end.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from runner.protocol.engine import StructuredOutput

if TYPE_CHECKING:
    from random import Random

_LETTERS = "abcdé €😀"


class Case(NamedTuple):
    """A structure, and what says whether a text has it: a schema or an expression."""

    asked: StructuredOutput
    schema: Any = None
    pattern: str | None = None


def random_schema(chance: Random, depth: int = 2) -> dict[str, Any]:
    kinds = ["string", "integer", "boolean", "null", "enum", "const", "number", "format"]
    match chance.choice([*kinds, "object", "array", "anyOf", "object"] if depth else kinds):
        case "string":
            return {"type": "string", "minLength": chance.randrange(3), "maxLength": chance.randrange(3, 9)}
        case "integer":
            low = chance.randrange(-1000, 1000)
            return {"type": "integer", "minimum": low, "maximum": low + chance.randrange(500)}
        case "number":
            return {"enum": [chance.randrange(100) / 4, -1.5, 1e6]}
        case "format":
            return {"type": "string", "format": chance.choice(["date", "time", "uuid", "ipv4"])}
        case "enum":
            return {"enum": ["".join(chance.choices(_LETTERS, k=4)), chance.randrange(9), None, True]}
        case "const":
            return {"const": ["x", chance.randrange(9)]}
        case "object":
            names = [f"{chance.choice('abc')}{number}" for number in range(chance.randrange(4))]
            return {
                "type": "object",
                "properties": {name: random_schema(chance, depth - 1) for name in names},
                "required": [name for name in names if chance.random() < 0.6],
                "additionalProperties": False,
            }
        case "array":
            least = chance.randrange(3)
            items = random_schema(chance, depth - 1)
            return {"type": "array", "items": items, "minItems": least, "maxItems": least + 1}
        case "anyOf":
            return {"anyOf": [random_schema(chance, depth - 1) for _ in range(2)]}
        case kind:
            return {"type": kind}


def schema_case(chance: Random) -> Case:
    schema = random_schema(chance)
    return Case(StructuredOutput("json_schema", json.dumps(schema)), schema=schema)


def other_case(chance: Random) -> Case:
    texts = ["".join(chance.choices(_LETTERS + '"\\/\n|*', k=chance.randrange(1, 9))) for _ in range(3)]
    match chance.choice(["regex", "choice", "ebnf_grammar"]):
        case "regex":
            pattern = chance.choice(["[a-c]{2,5}", "(yes|no)( please)?", r"\d{3}-\d{2}", "^x[0-9a-f]{1,4}$"])
            return Case(StructuredOutput("regex", pattern), pattern=pattern)
        case "choice":
            return Case(
                StructuredOutput("choice", json.dumps(texts)), pattern="|".join(map(re.escape, texts))
            )
        case _:
            grammar = 'root ::= word (" " word)?\nword ::= "red" | "green" | "blue"'
            return Case(
                StructuredOutput("ebnf_grammar", grammar), pattern="(red|green|blue)( (red|green|blue))?"
            )
