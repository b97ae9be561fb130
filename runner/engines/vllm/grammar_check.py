"""A process that tries grammars before the engine core gets them: an excessive one ends only this process.

    python -m runner.engines.vllm.grammar_check TOKENIZER_JSON VOCABULARY END_ID

Reads and writes lines of JSON: `{"kind": ..., "text": ...}` is answered by `{"field": ..., "text": ...}`,
what to tell vLLM (its `StructuredOutputsParams`), or by `{"reason": ...}`. Imports nothing of vLLM.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path

from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from llguidance.gbnf_to_lark import any_to_lark

from shared.unreadable import why_no_json

_BYTES = 1 << 30  # in addition to what the tokenizer takes
LIMITS = LLParserLimits(initial_lexer_fuel=100_000, step_lexer_fuel=20_000)
"""A tenth of the library's own, for the core, too: a sequence then takes some hundredths of a second."""
_TOKENS = 16
_MASK_SECONDS = 0.1  # of a processor; most take less than a hundredth of that
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
        matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=LIMITS)
        reason = matcher.get_error() or _why_not_followed(matcher)
    except RecursionError:
        reason = "it is nested too deeply"
    except ValueError as problem:
        reason = str(problem)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as problem:  # a panic of the library is not an Exception
        reason = f"{type(problem).__name__}: {problem}"
    return {"reason": reason} if reason else {"field": field, "text": told}


def _why_not_followed(matcher: LLMatcher) -> str:
    """Why the core could not follow it for some tokens without holding up everybody's; empty if it could.

    It makes a mask of the allowed tokens in each step, for each sequence. A lexer that is too complex is
    found only when a token is taken.
    """
    for _ in range(_TOKENS):
        started = time.process_time()
        mask = matcher.compute_bitmask()
        reason: str = matcher.get_error()
        if reason:
            return reason
        if time.process_time() - started > _MASK_SECONDS:
            return "it is too complex"
        allowed = next((8 * place + byte.bit_length() - 1 for place, byte in enumerate(mask) if byte), None)
        if allowed is None:
            return ""
        matcher.consume_token(allowed)
        if matcher.is_stopped():  # at its end, or with an error that shows the parser's state
            return "it is too complex" if matcher.is_error() else ""
    return ""


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
    # What a library says while it dies of a structure would alarm whoever reads the log; the sender is told.
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stderr.fileno())
    for line in sys.stdin:
        asked = json.loads(line)
        sys.stdout.write(json.dumps(check(tokenizer, asked["kind"], asked["text"])) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
