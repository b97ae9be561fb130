"""Greedy texts after fifty prompts, to be the same through the runner as from vLLM itself."""

from __future__ import annotations

import json
import random
import urllib.request
from typing import TYPE_CHECKING

from tests.gpu.serving.model import MODEL_NAME
from tests.gpu.serving.tokenizer import VOCABULARY

if TYPE_CHECKING:
    from pathlib import Path

GREEDY_PROMPTS, GREEDY_TOKENS = 50, 24


def greedy_prompts() -> list[list[int]]:
    """The same each time."""
    chance = random.Random(1)
    return [
        [chance.randrange(1000, VOCABULARY - 1) for _ in range(chance.randrange(1, 60))]
        for _ in range(GREEDY_PROMPTS)
    ]


def greedy_texts(port: int) -> list[str]:
    """What the runner writes after each prompt; one by one, as a GPU's sums depend on what is in a batch."""
    return [_greedy(port, prompt) for prompt in greedy_prompts()]


def against(expected: Path | None, texts: list[str]) -> dict[str, int]:
    """The texts compared with those of a file; without it they become what later calls expect."""
    if expected is not None and expected.exists():
        return compared(json.loads(expected.read_text()), texts)
    if expected is not None:
        expected.write_text(json.dumps(texts))
    return {}


def compared(expected: list[str], texts: list[str]) -> dict[str, int]:
    """How many prompts have the expected text, and how many characters come before the first other one."""
    pairs = list(zip(expected, texts, strict=True))
    before = (
        next(
            (place for place, (one, other) in enumerate(zip(*pair, strict=False)) if one != other),
            min(map(len, pair)),
        )
        for pair in pairs
    )
    return {
        "prompts": len(pairs),
        "equal": sum(one == other for one, other in pairs),
        "characters": sum(map(len, expected)),
        "before_the_first_other": sum(before),
    }


def _greedy(port: int, prompt: list[int]) -> str:
    body = {
        "model": MODEL_NAME,
        "prompt": prompt,
        "max_tokens": GREEDY_TOKENS,
        "temperature": 0,
        "ignore_eos": True,
    }
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        text: str = json.load(answer)["choices"][0]["text"]
    return text
