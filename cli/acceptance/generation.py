"""Tokens: those of the checkpoint, each once, until an end; and cancelled when nobody wants them."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack, closing
from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from .bench import replace
from .building import config_of
from .check import Check, Outcome, Skip, Unable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .bench import Bench
    from .server import Server

PROMPTS = ("Once upon a time,", "Tell me a story about a lion.\n", "One rainy morning, the owl")
_TOKENS = 16
_SURE = 0.5  # a lead of logits that the rounding of 16 bits does not turn
_LONG = 200
_MOST_STREAMS = 64


class Reference(NamedTuple):
    """What a prompt leads to by the checkpoint itself, as far as that is sure."""

    prompt: list[int]
    tokens: list[int]


@cache
def references(bench: Bench) -> list[Reference]:
    """Of PROMPTS, by transformers in float32, in TensorRT-LLM's environment."""
    tokenizer = bench.tokenizer
    prompts = [tokenizer.encode(prompt) for prompt in PROMPTS]
    asked = [",".join(map(str, ids)) for ids in prompts]
    kept = bench.directory / "references.json"
    if not kept.is_file():
        answers = bench.ask_inside("reference", str(bench.model), str(_TOKENS), *asked)
        kept.write_text(json.dumps(answers), encoding="utf-8")
    answers = json.loads(kept.read_text(encoding="utf-8"))
    found = []
    for prompt, answer in zip(prompts, answers, strict=True):
        pairs = takewhile(
            lambda pair: pair[1] >= _SURE and pair[0] not in tokenizer.end_ids,
            zip(answer["tokens"], answer["margins"], strict=True),
        )
        found.append(Reference(prompt, [token for token, _ in pairs]))
    return found


def text_of(bench: Bench, tokens: Sequence[int]) -> str:
    """Their text."""
    return bench.tokenizer.decode(tokens)


def greedy_texts(bench: Bench, server: Server) -> Outcome:
    """What a server writes against the references."""
    expected, found = [], []
    for prompt, reference in zip(PROMPTS, references(bench), strict=True):
        text = server.complete(reference.prompt, _TOKENS).text
        bench.texts.setdefault(prompt, text)
        wanted = text_of(bench, reference.tokens)
        expected.append(wanted)
        found.append(text[: len(wanted)])
    return Outcome(repr(expected), repr(found))


def _greedy(bench: Bench) -> Outcome:
    return greedy_texts(bench, bench.serve())


def _streaming(bench: Bench) -> Outcome:
    server = bench.serve()
    whole = server.generate(PROMPTS[0], _TOKENS)
    pieces = [piece for piece in server.stream(PROMPTS[0], _TOKENS) if piece]
    kind = "in pieces" if len(pieces) > 1 else "in one piece"
    return Outcome(f"{whole!r} in pieces", f"{''.join(pieces)!r} {kind}")


def _cancel(bench: Bench) -> Outcome:
    """With a full batch of long requests the next one waits, unless they were cancelled."""
    places = config_of(bench.short)["build_config"]["max_batch_size"]
    if places > _MOST_STREAMS:
        raise Skip(f"the engine takes {places} requests at a time")
    server, prompt = bench.serve(), references(bench)[0].prompt

    def seconds(tokens: int) -> float:
        started = time.monotonic()
        server.complete(prompt, tokens, ignore_eos=True)
        return time.monotonic() - started

    alone = seconds(_LONG)
    with ExitStack() as streams:
        for _ in range(places):
            pieces = streams.enter_context(closing(server.stream(prompt, _LONG, ignore_eos=True)))
            next(pieces)
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

    variant = bench.variant("end-alone" if alone else "end-besides", bench.short, change)
    return _End(bench.serve(variant), reference, place)


def _ends_before(bench: Bench, end: _End) -> Outcome:
    answer = end.server.complete(end.reference.prompt, _TOKENS)
    wanted = text_of(bench, end.reference.tokens[: end.place])
    return Outcome(f"{wanted!r}, stop", f"{answer.text!r}, {answer.reason}")


def _end_id(bench: Bench) -> Outcome:
    return _ends_before(bench, _ending(bench, alone=True))


def _other_end_id(bench: Bench) -> Outcome:
    return _ends_before(bench, _ending(bench, alone=False))


def _min_tokens(bench: Bench) -> Outcome:
    end = _ending(bench, alone=True)
    least = end.place + 3
    tokens = end.server.complete(end.reference.prompt, _TOKENS, min_tokens=least).tokens
    expected = f"at least {least} tokens"
    return Outcome(expected, expected if tokens >= least else f"{tokens} tokens")


def _min_tokens_of_other(bench: Bench) -> Outcome:
    end = _ending(bench, alone=False)
    least = end.place + 3
    text = end.server.complete(end.reference.prompt, _TOKENS, min_tokens=least).text
    wanted = text_of(bench, end.reference.tokens[:least])
    return Outcome(repr(wanted), repr(text[: len(wanted)]))


def _stop(bench: Bench) -> Outcome:
    server, reference = bench.serve(), references(bench)[0]
    text = text_of(bench, reference.tokens)
    word = text.split()[-1]
    answer = server.complete(reference.prompt, _TOKENS, stop=[word])
    return Outcome(
        f"{text[: text.index(word)].rstrip()!r}, stop", f"{answer.text.rstrip()!r}, {answer.reason}"
    )


_LLM_REQUEST = "cpp/tensorrt_llm/batch_manager/llmRequest.cpp: createResult"

CHECKS = (
    Check(
        "greedy",
        "without top_k and top_p the likeliest token is taken: the text is that of the checkpoint",
        "cpp/tensorrt_llm/kernels/samplingTopKKernels.cu",
        _greedy,
    ),
    Check(
        "streaming",
        "streaming gives each token once, and one answer gives them all; neither holds the prompt",
        _LLM_REQUEST,
        _streaming,
    ),
    Check(
        "cancel",
        "cancel_request ends a request at its next step",
        "cpp/tensorrt_llm/executor/executorImpl.cpp: terminateCancelledRequests",
        _cancel,
    ),
    Check(
        "end id",
        "the end id ends a text and is not in the output",
        "cpp/tensorrt_llm/kernels/stopCriteriaKernels.cu, samplingTopKKernels.cu",
        _end_id,
    ),
    Check(
        "min_tokens",
        "the minimum-length penalty keeps end_id from being chosen",
        "cpp/tensorrt_llm/kernels/penaltyKernels.cu: minLength",
        _min_tokens,
    ),
    Check(
        "another end id",
        "a stop word of one token ends with STOP_WORDS, and stays in the output",
        "cpp/tensorrt_llm/kernels/stopCriteriaKernels.cu",
        _other_end_id,
    ),
    Check(
        "min_tokens of another end id",
        "a token that is neither end_id nor a stop word is written, also where we end at it later",
        "cpp/tensorrt_llm/kernels/penaltyKernels.cu masks end_id alone",
        _min_tokens_of_other,
    ),
    Check("stop word", "a text ends before a stop word", _LLM_REQUEST, _stop),
)
