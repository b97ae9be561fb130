"""`python -m builder.tokenizer --model DIR --output DIR`: in the tokenizer converter's environment.

Writes tokenizer.json, made from the model's slow tokenizer, and samples.json: what that makes of texts. A
coded error goes to stderr, with exit status 1.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from builder.tokenizer.corpus import TEXTS
from shared.errors import CogTritonError, NotEnoughSpace, TokenizerNotConverted

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        slow, fast = _tokenizers(arguments.model)
        samples = [_sample(slow, text) for text in _texts(slow)]
        _write(arguments.output / "tokenizer.json", fast.backend_tokenizer.to_str(pretty=True))
        _write(arguments.output / "samples.json", json.dumps(samples))
    except (TokenizerNotConverted, NotEnoughSpace) as error:
        failed: CogTritonError = error
    except Exception as error:  # the library raises whatever its readers raise
        failed = TokenizerNotConverted(reason=_told(error, arguments.model))
    else:
        return 0
    sys.stderr.write(f"{failed}\n")
    return 1


def _write(path: Path, text: str) -> None:
    """Raises NotEnoughSpace when the disk is full."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise NotEnoughSpace(reason=f"it was full before {path.name} was complete") from error
        raise


def _tokenizers(model: Path) -> tuple[Any, Any]:
    """The model's tokenizer, and a fast one that was made from it. Raises TokenizerNotConverted."""
    # Read when the library is imported: it must not ask the hub, nor give advice.
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    from transformers import AutoTokenizer

    options = {"trust_remote_code": False, "local_files_only": True}
    slow = AutoTokenizer.from_pretrained(model, use_fast=False, **options)
    if slow is False:  # what the library makes of a file that sentencepiece cannot read
        raise TokenizerNotConverted(reason="its files cannot be read")
    if slow.is_fast:  # tokenizer_config.json names the fast class
        if slow.slow_tokenizer_class is None:
            raise TokenizerNotConverted(reason=f"{type(slow).__name__} has no slow form to compare with")
        slow = slow.slow_tokenizer_class.from_pretrained(model, **options)
    fast = AutoTokenizer.from_pretrained(model, use_fast=True, from_slow=True, **options)
    if not fast.is_fast:
        raise TokenizerNotConverted(reason=f"{type(slow).__name__} cannot be written as tokenizer.json")
    if len(slow) != len(fast) or _added(slow) != _added(fast):
        raise TokenizerNotConverted(reason="its special tokens would have other ids")
    return slow, fast


def _added(tokenizer: Any) -> dict[int, str]:
    return {id_: str(token) for id_, token in tokenizer.added_tokens_decoder.items()}


def _texts(slow: Any) -> Iterator[str]:
    """The corpus, and texts from all parts of the vocabulary: the model's own language is among them."""
    yield from TEXTS
    if slow.eos_token:
        yield f"Hello{slow.eos_token}Hello{slow.eos_token} Hello\n"
    special = set(slow.all_special_ids) | set(slow.added_tokens_decoder)
    ids = [id_ for id_ in range(len(slow)) if id_ not in special]
    stride = max(1, -(-len(ids) // (_MAX_TEXTS * _TOKENS_IN_A_TEXT)))
    for start in range(0, len(ids), stride * _TOKENS_IN_A_TEXT):
        chosen = ids[start : start + stride * _TOKENS_IN_A_TEXT : stride]
        yield _decoded(slow, chosen)


def _sample(slow: Any, text: str) -> dict[str, Any]:
    """What `step.compare` gets."""
    ids = slow.encode(text, add_special_tokens=False)
    return {"text": text, "ids": ids, "all_ids": slow.encode(text), "decoded": _decoded(slow, ids)}


def _decoded(slow: Any, ids: list[int]) -> str:
    options = {"clean_up_tokenization_spaces": False, "spaces_between_special_tokens": False}
    decoded: str = slow.decode(ids, skip_special_tokens=True, **options)
    return decoded


def _told(error: Exception, model: Path) -> str:
    """One sentence of the library's message, which may be pages long, without the model's location."""
    text = str(error).replace(f"{model}/", "").replace(str(model), "the model")
    if _OWN_CODE in text:
        return "it needs code that comes with the model, which is not run"
    first = re.split(r"[.!?]\s|\n", text.strip())[0][:200].rstrip(".")
    return f"transformers fails on it ({first or type(error).__name__})"


if __name__ == "__main__":
    sys.exit(main())
