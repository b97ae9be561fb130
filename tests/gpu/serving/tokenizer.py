"""A real byte-level BPE tokenizer for the measured model: `python -m tests.gpu.serving.tokenizer` makes it.

With a made-up tokenizer, the Rust front of `vllm serve` falls back to a slow path that costs five times the CPU.
This one is Mistral's, with 131,072 tokens. It is made from the tekken.json in mistral_common, which comes with
vLLM (`make test-vllm`), and travels with the code.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
TOKENIZER = ROOT / ".build/serving-tokenizer"
VOCABULARY = 131_072
_SOURCE = "test-vllm/lib/python3.*/site-packages/mistral_common/data/tekken_240911.json"
_FILES = ("tokenizer.json", "tokenizer_config.json")
_WORDS = "words.json"


@cache
def words() -> list[int]:
    """Tokens that are a space and lower-case letters each. A text of them has exactly these tokens."""
    ids: list[int] = json.loads((TOKENIZER / _WORDS).read_text())["ids"]
    return ids


@cache
def texts() -> dict[int, str]:
    """The text of each of them."""
    return dict(zip(words(), json.loads((TOKENIZER / _WORDS).read_text())["texts"], strict=True))


def copy_tokenizer(directory: Path, source: Path = TOKENIZER) -> None:
    """Put the files of a tokenizer where a model has them. Raises SystemExit if there are none."""
    if not (source / _FILES[0]).exists():
        sys.exit("there is no tokenizer: run `make test-vllm`, then `python -m tests.gpu.serving.tokenizer`")
    for name in _FILES:
        shutil.copy(source / name, directory)


def make_tokenizer(directory: Path = TOKENIZER) -> None:
    """Convert it, as a build would, and list its words. Raises SystemExit without vLLM's packages."""
    from tokenizers import Tokenizer

    tekken = next((ROOT / ".build").glob(_SOURCE), None)
    if tekken is None:
        sys.exit("mistral_common is missing: run `make test-vllm` first")
    directory.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as model:
        shutil.copy(tekken, Path(model, "tekken.json"))
        python = ROOT / ".build/tokenizer-converter/bin/python"
        command = [str(python), "-m", "builder.tokenizer", "--model", model, "--output", str(directory)]
        subprocess.run(command, cwd=ROOT, check=True)
    (directory / "samples.json").unlink()
    tokenizer = Tokenizer.from_file(str(directory / _FILES[0]))
    assert tokenizer.get_vocab_size() == VOCABULARY
    candidates = [token for token in tokenizer.get_vocab() if re.fullmatch(r"Ġ[a-z]{3,}", token)]
    spelled = {" " + token[1:]: tokenizer.token_to_id(token) for token in sorted(candidates)}
    whole = [text for text, id_ in spelled.items() if _ids(tokenizer, text) == [id_]]
    assert _ids(tokenizer, "".join(whole)) == [spelled[text] for text in whole]
    content = {"ids": [spelled[text] for text in whole], "texts": whole}
    (directory / _WORDS).write_text(json.dumps(content))
    print(f"{directory}: {len(whole)} words")


def _ids(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


if __name__ == "__main__":
    make_tokenizer()
