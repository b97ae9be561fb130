"""What is looked at in the same way for every engine: the tokens that it writes, each once, until an end; and
that it forgets what nobody wants.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from .bench import replace
from .check import Outcome, Skip, Unable
from .server import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .bench import Bench
    from .server import Server

PROMPTS = ("Once upon a time,", "Tell me a story about a lion.\n", "One rainy morning, the owl")
_TOKENS = 16
SURE = 0.5
"""A lead of logits that the rounding of 16 bits does not turn."""
_LONG = 200
_MORE = 3  # so many tokens after an end id a text goes on
_MOST_STREAMS = 64


class Reference(NamedTuple):
    """What a prompt leads to by somebody else than our engine process, as far as that is sure."""

    prompt: list[int]
    tokens: list[int]


@cache
def references(bench: Bench, sure: float | None = None) -> list[Reference]:
    """Of PROMPTS; `sure` takes the place of the bench's."""
    wanted = bench.sure if sure is None else sure
    tokenizer = bench.tokenizer
    prompts = [tokenizer.encode(prompt) for prompt in PROMPTS]
    kept = bench.directory / "references.json"
    if not kept.is_file():
        kept.write_text(json.dumps(bench.likeliest(prompts, _TOKENS)), encoding="utf-8")
    answers = json.loads(kept.read_text(encoding="utf-8"))
    found = []
    for prompt, answer in zip(prompts, answers, strict=True):
        pairs = takewhile(
            lambda pair: pair[1] >= wanted and pair[0] not in tokenizer.end_ids,
            zip(answer["tokens"], answer["margins"], strict=True),
        )
        found.append(Reference(prompt, [token for token, _ in pairs]))
    return found


def text_of(bench: Bench, tokens: Sequence[int]) -> str:
    """Their text."""
    return bench.tokenizer.decode(tokens)


def greedy_texts(bench: Bench, server: Server, sure: float | None = None) -> Outcome:
    """What a server writes against the references."""
    expected, found = [], []
    for prompt, reference in zip(PROMPTS, references(bench, sure), strict=True):
        text = server.complete(reference.prompt, _TOKENS).text
        bench.texts.setdefault(prompt, text)
        wanted = text_of(bench, reference.tokens)
        expected.append(wanted)
        found.append(text[: len(wanted)])
    return Outcome(repr(expected), repr(found))


def greedy(bench: Bench) -> Outcome:
    """The greedy texts of the usual engine."""
    return greedy_texts(bench, bench.serve())


def streaming(bench: Bench) -> Outcome:
    """Pieces of a text against the text in one answer."""
    server = bench.serve()
    whole = server.generate(PROMPTS[0], _TOKENS)
    pieces = [piece for piece in server.stream(PROMPTS[0], _TOKENS) if piece]
    kind = "in pieces" if len(pieces) > 1 else "in one piece"
    return Outcome(f"{whole!r} in pieces", f"{''.join(pieces)!r} {kind}")


def cancel(bench: Bench) -> Outcome:
    """With a full batch of long requests the next one waits, unless they were cancelled."""
    places = bench.places
    if places > _MOST_STREAMS:
        raise Skip(f"the engine takes {places} requests at a time")
    server, prompt = bench.serve(), references(bench)[0].prompt

    def seconds(tokens: int) -> float:
        started = time.monotonic()
        server.complete(prompt, tokens, ignore_eos=True)
        return time.monotonic() - started

    alone = seconds(_LONG)
    with ExitStack() as streams, ThreadPoolExecutor(places) as pool:
        begun = [
            streams.enter_context(closing(server.stream(prompt, _LONG, ignore_eos=True)))
            for _ in range(places)
        ]
        # At once: one after another, the first might have ended by itself when the last begins.
        list(pool.map(next, begun))
    waited = seconds(1)
    expected = "the next request waits for none of them"
    return Outcome(
        expected,
        expected if waited < alone / 2 else f"it waits {waited:.2f} s; one of them takes {alone:.2f}",
    )


class _End(NamedTuple):
    """An engine whose model may also end at a token that the first reference holds."""

    server: Server
    reference: Reference
    place: int
    """Of that token, which does not stand before."""


def _ending(bench: Bench, *, alone: bool) -> _End:
    reference = references(bench)[0]
    tokens = reference.tokens
    place = next((at for at in range(2, len(tokens) - 4) if tokens[at] not in tokens[:at]), None)
    if place is None:
        raise Unable("the first reference is too short to be ended")
    ids = [tokens[place]] if alone else [*sorted(bench.tokenizer.end_ids), tokens[place]]

    def change(engine: Path) -> None:
        replace(engine / "tokenizer/generation_config.json", json.dumps({"eos_token_id": ids}).encode())

    variant = bench.variant("end-alone" if alone else "end-besides", bench.engine, change)
    return _End(bench.serve(variant), reference, place)


def ends_before(bench: Bench, *, alone: bool) -> Outcome:
    """A text against the reference up to an end id, which is `alone` or besides those of the tokenizer."""
    end = _ending(bench, alone=alone)
    answer = end.server.complete(end.reference.prompt, _TOKENS)
    wanted = text_of(bench, end.reference.tokens[: end.place])
    return Outcome(f"{wanted!r}, stop", f"{answer.text!r}, {answer.reason}")


def min_tokens(bench: Bench, *, alone: bool) -> Outcome:
    """How many tokens there are where fewer than the minimum stand before an end id."""
    end = _ending(bench, alone=alone)
    least = end.place + _MORE
    tokens = end.server.complete(end.reference.prompt, _TOKENS, min_tokens=least).tokens
    expected = f"at least {least} tokens"
    return Outcome(expected, expected if tokens >= least else f"{tokens} tokens")


def written_before_minimum(bench: Bench) -> Outcome:
    """The text up to the minimum, where another end id than the tokenizer's stands before it."""
    end = _ending(bench, alone=False)
    least = end.place + _MORE
    text = end.server.complete(end.reference.prompt, _TOKENS, min_tokens=least).text
    wanted = text_of(bench, end.reference.tokens[:least])
    return Outcome(repr(wanted), repr(text[: len(wanted)]))


def stop_word(bench: Bench) -> Outcome:
    """A text with its last word as a stop word."""
    server, reference = bench.serve(), references(bench)[0]
    text = text_of(bench, reference.tokens)
    word = text.split()[-1]
    answer = server.complete(reference.prompt, _TOKENS, stop=[word])
    return Outcome(
        f"{text[: text.index(word)].rstrip()!r}, stop", f"{answer.text.rstrip()!r}, {answer.reason}"
    )


def longest_prompt(bench: Bench, longest: int) -> Outcome:
    """A prompt at the limit, and one more."""
    server = bench.serve()

    def said(length: int) -> str:
        try:
            server.complete(prompt_of(bench, length), 1)
        except Refused as error:
            return str(error).partition(" ")[0]
        return "taken"

    return Outcome(
        f"{longest}: taken, {longest + 1}: E1002",
        f"{longest}: {said(longest)}, {longest + 1}: {said(longest + 1)}",
    )


def prompt_of(bench: Bench, length: int) -> list[int]:
    """A prompt of so many tokens."""
    tokens = references(bench)[0].prompt
    return (tokens * (length // len(tokens) + 1))[:length]
