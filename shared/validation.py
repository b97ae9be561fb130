"""What pydantic finds wrong with a value, in the words of this project."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_WANTED = {
    "missing": "is missing",
    "extra_forbidden": "is unknown",
    "string_type": "must be text",
    "string_too_short": "must not be empty",
    "too_short": "must not be empty",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "is too far from 0",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
}
_LEAST_FLOAT = 2**63  # from here on, a reader of JSON gives a whole number as a float


def visible(name: str) -> str:
    """A name that somebody sent; in quotes if it cannot be seen without."""
    return name if name and name.isprintable() and name == name.strip() else ascii(name)


def wanted(detail: ErrorDetails, *, mapping: str = "an object") -> str:
    """What the value must be, to follow its name: `must be a whole number`, `is missing`.

    `mapping` is what its format calls a mapping.
    """
    match detail["type"]:
        case "dict_type" | "model_type":
            return f"must be {mapping}"
        case "too_long":
            return f"may have at most {detail['ctx']['max_length']} entries"
        case "int_type" if isinstance(detail["input"], float) and abs(detail["input"]) >= _LEAST_FLOAT:
            return _WANTED["int_parsing_size"]
        case "value_error":
            return str(detail["ctx"]["error"])
        case "json_invalid" if detail["ctx"]["error"].startswith("recursion limit exceeded"):
            return "is nested too deeply"
        case "json_invalid":
            return f"is not JSON: {detail['ctx']['error']}"
        case known:
            return _WANTED.get(known) or re.sub(r"^\w+ should", "must", detail["msg"])
