"""A process that tries grammars before the engine core gets them: an excessive one ends only this process.

    python -m runner.engines.vllm.grammar_check TOKENIZER_JSON VOCABULARY END_ID

Reads and writes lines of JSON: `{"kind": ..., "text": ...}` is answered by `{"field": ..., "text": ...}`,
what to tell vLLM (its `StructuredOutputsParams`), or by `{"reason": ...}`. Imports nothing of vLLM.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

from llguidance import LLMatcher, LLTokenizer
from llguidance.gbnf_to_lark import any_to_lark

from shared.unreadable import why_no_json

_BYTES = 1 << 30  # in addition to what the tokenizer takes
# On one line: if any white space were allowed, small models would write nothing else.
_JSON_FORM = {"whitespace_flexible": False, "item_separator": ",[ ]?", "key_separator": ":[ ]?"}


def translated(kind: str, text: str) -> tuple[str, str, str]:
    """The field to set for vLLM, its text, and the grammar that vLLM will make from it.

    Raises ValueError and RecursionError.
    """
    match kind:
        case "json_schema":
            schema = _read(text)
            if schema is True:
                schema = {}
            if not isinstance(schema, dict):
                raise ValueError("a schema must be an object")  # noqa: TRY004 # as the library says it
            # The key is an option of the library, not for the sender to set.
            text = json.dumps(schema | {"x-guidance": _JSON_FORM})
            return "json", text, LLMatcher.grammar_from_json_schema(text)
        case "regex":
            return "regex", text, LLMatcher.grammar_from_regex(text)
        case "choice":
            choices = _read(text)
            if not isinstance(choices, list) or not choices or not all(map(_is_text, choices)):
                raise ValueError("choices must be a list of texts")
            text = "start: " + " | ".join(map(json.dumps, choices))
        case _:
            text = any_to_lark(text)
    # Marked as Lark, so that vLLM does not take it for another kind of grammar.
    return "grammar", text, LLMatcher.grammar_from_lark(text)


def _read(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"it {why_no_json(problem)}") from None


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def check(tokenizer: LLTokenizer, kind: str, text: str) -> dict[str, str]:
    """What to tell vLLM, or the reason why it cannot follow this."""
    try:
        field, told, grammar = translated(kind, text)
        matcher = LLMatcher(tokenizer, grammar, log_level=0)
        if not (reason := matcher.get_error()):
            matcher.compute_bitmask()
            reason = matcher.get_error()
    except RecursionError:
        reason = "it is nested too deeply"
    except ValueError as problem:
        reason = str(problem)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as problem:  # a panic of the library is not an Exception
        reason = f"{type(problem).__name__}: {problem}"
    return {"reason": reason} if reason else {"field": field, "text": told}


def main() -> None:
    """Answer until there are no more lines."""
    path, vocabulary, end_id = sys.argv[1:]
    tokenizer = LLTokenizer(path, n_vocab=int(vocabulary), eos_token=int(end_id))
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + _BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stdout.write("{}\n")
    sys.stdout.flush()
    for line in sys.stdin:
        asked = json.loads(line)
        sys.stdout.write(json.dumps(check(tokenizer, asked["kind"], asked["text"])) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
