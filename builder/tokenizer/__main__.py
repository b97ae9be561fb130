"""`python -m builder.tokenizer --model DIR --output DIR`: in the tokenizer converter's environment.

Writes tokenizer.json and, where the model needs one, tokenizer_config.json, both made from its own tokenizer;
and samples.json: what that makes of texts. A coded error goes to stderr, with exit status 1.
"""

from __future__ import annotations

import argparse
import errno
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from builder.tokenizer.corpus import TEXTS
from builder.tokenizer.from_slow import from_slow
from builder.tokenizer.from_tekken import from_tekken
from builder.tokenizer.tekken import TEKKEN
from shared.errors import CogTritonError, NotEnoughSpace, TokenizerNotConverted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from builder.tokenizer.made import Made, Original

_TOKENS_IN_A_TEXT = 16
_MAX_TEXTS = 500  # made from the model's own tokens
_OWN_CODE = "trust_remote_code"


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="python -m builder.tokenizer", description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    try:
        original, files = _made(arguments.model)
        samples = [_sample(original, text) for text in _texts(original)]
        for name, text in files.items():
            _write(arguments.output / name, text)
        _write(arguments.output / "samples.json", json.dumps(samples))
    except CogTritonError as error:
        failed = error
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the libraries raise whatever their readers raise, and panic
        failed = TokenizerNotConverted(reason=_told(error, arguments.model))
    else:
        return 0
    sys.stderr.write(f"{failed}\n")
    return 1


def _made(model: Path) -> Made:
    return from_tekken(model) if (model / TEKKEN).exists() else from_slow(model)


def _write(path: Path, text: str) -> None:
    """Raises NotEnoughSpace when the disk is full."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise NotEnoughSpace(reason=f"it was full before {path.name} was complete") from error
        raise


def _texts(original: Original) -> Iterator[str]:
    """The corpus, and texts from all parts of the vocabulary: the model's own language is among them."""
    yield from TEXTS
    if original.end:
        yield f"Hello{original.end}Hello{original.end} Hello\n"
    ids = original.ordinary
    stride = max(1, -(-len(ids) // (_MAX_TEXTS * _TOKENS_IN_A_TEXT)))
    for start in range(0, len(ids), stride * _TOKENS_IN_A_TEXT):
        yield original.decode(ids[start : start + stride * _TOKENS_IN_A_TEXT : stride])


def _sample(original: Original, text: str) -> dict[str, Any]:
    """What `step.compare` gets."""
    ids, all_ids = (original.encode(text, add_special_tokens=added) for added in (False, True))
    return {"text": text, "ids": ids, "all_ids": all_ids, "decoded": original.decode(ids)}


def _told(error: BaseException, model: Path) -> str:
    """One sentence of the library's message, which may be pages long, without the model's location."""
    text = str(error).replace(f"{model}/", "").replace(str(model), "the model")
    if _OWN_CODE in text:
        return "it needs code that comes with the model, which is not run"
    first = re.split(r"[.!?]\s|\n", text.strip())[0][:200].rstrip(".")
    return f"converting it fails ({first or type(error).__name__})"


if __name__ == "__main__":
    sys.exit(main())
