"""What is checked the same way for every engine: the tokens that it writes, each once, up to an end; and that
it drops what nobody wants.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import cache, partial
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from cli.output import counted

from .bench import replace
from .check import Check, Outcome, Skip, Unable
from .server import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from .bench import Bench
    from .server import Server

PROMPTS = ("Once upon a time,", "Tell me a story about a lion.\n", "One rainy morning, the owl")
_TOKENS = 16
SURE = 0.5
"""A lead in logits that 16-bit rounding does not reverse."""
_LONG = 200
_MORE = 3  # how many tokens a text continues after an end id
_MAX_STREAMS = 64
_ATTEMPTS = 10
_PIECES = 4  # more than one: the server must have had time to count what ended before them


class Reference(NamedTuple):
    """What follows a prompt according to a program other than our engine process, as far as is certain."""

    prompt: list[int]
    tokens: list[int]


@cache
def references(bench: Bench, sure: float | None = None) -> list[Reference]:
    """The references for PROMPTS; `sure` replaces the bench's."""
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
    """Compare what a server writes with the references."""
    expected, found = [], []
    for prompt, reference in zip(PROMPTS, references(bench, sure), strict=True):
        text = server.complete(reference.prompt, _TOKENS).text
        bench.texts.setdefault(prompt, text)
        wanted = text_of(bench, reference.tokens)
        expected.append(wanted)
        found.append(text[: len(wanted)])
    return Outcome(repr(expected), repr(found))


def greedy(bench: Bench) -> Outcome:
    """Check the greedy texts of the usual engine."""
    return greedy_texts(bench, bench.serve())


def streaming(bench: Bench) -> Outcome:
    """Compare the pieces of a text with the text in one answer."""
    server = bench.serve()
    whole = server.generate(PROMPTS[0], _TOKENS)
    pieces = [piece for piece in server.stream(PROMPTS[0], _TOKENS) if piece]
    kind = "in pieces" if len(pieces) > 1 else "in one piece"
    return Outcome(f"{whole!r} in pieces", f"{''.join(pieces)!r} {kind}")


def cancel(bench: Bench) -> Outcome:
    """With a full batch of long requests another one waits for a place, unless some of them were cancelled.

    The order in which they end shows it, which a slow machine does not change: if the waiting one writes
    before the oldest, which is not cancelled, has ended, it has the place of a cancelled one. If the machine
    was held up so long that the oldest ended meanwhile, it is tried again. Raises Unable if it always ended
    before the others could be cancelled.
    """
    places = bench.places
    if not 1 < places <= _MAX_STREAMS:
        raise Skip(f"the engine takes {counted(places, 'request')} at a time")
    server, prompt = bench.serve(), references(bench)[0].prompt
    expected = "another request takes the place of one that was cancelled"
    waited = 0
    for _ in range(_ATTEMPTS):
        ended = server.succeeded()
        with ExitStack() as streams:
            oldest, another = (
                streams.enter_context(closing(server.stream(prompt, _LONG, ignore_eos=True)))
                for _ in range(2)
            )
            next(oldest)
            _cancelled(server, prompt, places - 1)
            if server.succeeded() > ended:
                continue
            list(islice(another, _PIECES))
            if server.succeeded() == ended:
                return Outcome(expected, expected)
            waited += 1
    if not waited:
        raise Unable(f"a long request ended before others had begun, in {_ATTEMPTS} of {_ATTEMPTS} attempts")
    return Outcome(expected, f"it waited until one had ended, in {waited} of {waited} attempts")


def _cancelled(server: Server, prompt: Sequence[int], count: int) -> None:
    """Cancel `count` long requests that have all begun."""
    with ExitStack() as streams:
        begun = [
            streams.enter_context(closing(server.stream(prompt, _LONG, ignore_eos=True)))
            for _ in range(count)
        ]
        # All together: one after another, the first might have ended by itself before the last begins. All
        # are waited for, since none can be closed while a thread reads it.
        with ThreadPoolExecutor(count) as pool:
            pool.map(next, begun)


class _End(NamedTuple):
    """An engine whose model may also end at a token in the first reference."""

    server: Server
    reference: Reference
    place: int
    """The position of that token, which does not occur earlier."""


def _ending(bench: Bench, *, alone: bool) -> _End:
    reference = references(bench)[0]
    tokens = reference.tokens
    place = next((at for at in range(2, len(tokens) - 4) if tokens[at] not in tokens[:at]), None)
    if place is None:
        raise Unable("the first reference is too short to end early")
    ids = [tokens[place]] if alone else [*sorted(bench.tokenizer.end_ids), tokens[place]]

    def change(engine: Path) -> None:
        replace(engine / "tokenizer/generation_config.json", json.dumps({"eos_token_id": ids}).encode())

    variant = bench.variant("end-alone" if alone else "end-besides", bench.engine, change)
    return _End(bench.serve(variant), reference, place)


def ends_before(bench: Bench, *, alone: bool) -> Outcome:
    """Compare a text with the reference up to an end id, which is `alone` or one besides the tokenizer's."""
    end = _ending(bench, alone=alone)
    answer = end.server.complete(end.reference.prompt, _TOKENS)
    wanted = text_of(bench, end.reference.tokens[: end.place])
    return Outcome(f"{wanted!r}, stop", f"{answer.text!r}, {answer.reason}")


def min_tokens(bench: Bench, *, alone: bool) -> Outcome:
    """How many tokens there are when fewer than the minimum precede an end id."""
    end = _ending(bench, alone=alone)
    least = end.place + _MORE
    tokens = end.server.complete(end.reference.prompt, _TOKENS, min_tokens=least).tokens
    expected = f"at least {least} tokens"
    return Outcome(expected, expected if tokens >= least else f"{tokens} tokens")


def written_before_minimum(bench: Bench) -> Outcome:
    """The text up to the minimum, with an end id other than the tokenizer's before it."""
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
    """A prompt at the limit, and one that is a token longer."""
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
    """A prompt of that many tokens."""
    tokens = references(bench)[0].prompt
    return (tokens * (length // len(tokens) + 1))[:length]


LOOKS: dict[str, Callable[[Any], Outcome]] = {
    "greedy": greedy,
    "streaming": streaming,
    "cancel": cancel,
    "end id": partial(ends_before, alone=True),
    "min_tokens": partial(min_tokens, alone=True),
    "another end id": partial(ends_before, alone=False),
    "min_tokens of two end ids": partial(min_tokens, alone=False),
    "min_tokens of another end id": written_before_minimum,
    "stop word": stop_word,
}


class Assumed(NamedTuple):
    """What an engine has to do for one of LOOKS; the fields are those of a Check."""

    assumes: str
    source: str


def checks(assumed: Mapping[str, Assumed]) -> tuple[Check, ...]:
    """The checks of an engine, by their names in LOOKS, in that order."""
    return tuple(Check(name, *why, LOOKS[name]) for name, why in assumed.items())
