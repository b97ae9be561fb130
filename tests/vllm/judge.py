"""Which texts have not their structure, as JSON: `judge.py RESULT CASES`, in vLLM's environment.

A case is [what was asked, a schema or null, an expression or null, the text].
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from jsonschema import Draft202012Validator


def has_structure(schema: object, pattern: str | None, text: str) -> bool:
    if pattern is not None:
        return re.fullmatch(pattern, text) is not None
    validator = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    try:
        return validator.is_valid(json.loads(text))
    except ValueError:
        return False


def main() -> None:
    result, cases = map(Path, sys.argv[1:])
    wrong = [case for case in json.loads(cases.read_bytes()) if not has_structure(*case[1:])]
    result.write_text(json.dumps(wrong))


if __name__ == "__main__":
    main()
