"""What every engine is to the engine process: the interface, and its vocabulary.

The words are those of TensorRT-LLM's executor. Standard library only.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from shared.errors import CogTritonError


MAX_TOKENS = 2**31 - 1  # what the tensor `request_output_len` can hold
MAX_LOG_PROBS = 255  # alternatives to a token: a STEP counts them in one byte


class FinishReason(IntEnum):
    """Why a sequence ended; names and values of `tensorrt_llm.bindings.executor.FinishReason`."""

    NOT_FINISHED = 0
    END_ID = 1
    STOP_WORDS = 2
    LENGTH = 3
    TIMED_OUT = 4
    CANCELLED = 5


@dataclass(frozen=True, slots=True)
class SamplingParameters:
    """How tokens are chosen; None is "not set". Names of `executor.SamplingConfig`.

    runner/engines/catalogue.py says which of these an engine can honour.

    With neither `top_k` nor `top_p` (unset, 0, or a top_k of -1) every engine chooses the likeliest token, as
    TensorRT-LLM does; a `top_p` of 1 chooses among all tokens.
    """

    top_k: int | None = None
    top_p: float | None = None
    temperature: float | None = None
    min_tokens: int | None = None
    seed: int | None = None
    length_penalty: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    min_p: float | None = None


@dataclass(frozen=True, slots=True)
class StructuredOutput:
    """What constrains a text. A class of its own, so that nobody prints a whole schema by accident."""

    kind: str
    """`json_schema`, `regex`, `ebnf_grammar` (TensorRT-LLM's words) or `choice`."""
    text: str
    """That schema, that expression, that grammar, or a JSON list of texts."""

    def __str__(self) -> str:
        return "<structure>"


STRUCTURES = ("json_schema", "regex", "ebnf_grammar", "choice")
"""The kinds of `StructuredOutput`."""


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt, as token ids."""

    request_id: int  # unique while the bridge lives
    input_token_ids: Sequence[int]
    max_tokens: int
    end_ids: frozenset[int] = frozenset()
    stop_words: Sequence[Sequence[int]] = ()
    bad_words: Sequence[Sequence[int]] = ()  # never written; not every engine can
    logit_bias: Mapping[int, float] = field(default_factory=dict)  # by token; not every engine can
    log_probs: int | None = None  # how many alternatives to report beside the choice; not every engine can
    structured_output: StructuredOutput | None = None  # not every engine can
    lora: str | None = None  # an adapter: its folder below LORA_FOLDER; not every engine can
    cache_salt: str | None = (
        None  # what is kept of prompts is shared among requests with one salt; not every engine can
    )
    priority: int | None = None  # lower is earlier, from 0 on; not every engine can
    sampling: SamplingParameters = field(default_factory=SamplingParameters)
    streaming: bool = True


class LogProbs(NamedTuple):
    """Natural logarithms of the probabilities at one position of a text."""

    chosen: float
    """Of the token at that position."""
    likeliest: Sequence[tuple[int, float]] = ()
    """Of as many others as were asked for: token and value, likeliest first; the chosen one may be among
    them.
    """
    rank: int | None = None
    """The place of the chosen one among all tokens, from 1 on, if the engine knows it. Told to nobody but
    clients of Triton's vLLM backend.
    """


class Output(NamedTuple):
    """What one engine step gave one request.

    An output with a `finish_reason` other than NOT_FINISHED, or with an `error`, is the request's last.
    """

    request_id: int
    tokens: Sequence[int] = ()
    """New ones only; the end id is not among them."""
    finish_reason: FinishReason = FinishReason.NOT_FINISHED
    error: CogTritonError | None = None
    log_probs: Sequence[LogProbs] = ()
    """One for each token, if the request asked for them."""
    cached_tokens: int | None = None
    """How many tokens of the prompt needed no computation; reported once, if the engine knows."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a loaded engine can accept. The host refuses what exceeds it before an engine sees it."""

    sequence: int
    """The most tokens of prompt and answer together."""
    prompt: int
    """The most tokens of a prompt."""
    vocabulary: int | None = None
    """Token ids are below it; None: any id that is not negative is valid."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a loaded engine declares: the one source for everything that sends it requests."""

    kind: str
    """Its name in runner/engines/catalogue.py."""
    limits: Limits
    honours: frozenset[str]
    """Names of the `SamplingParameters` and of the optional parts of a `Request` that have an effect."""
    seeds: bool = False
    """Whether a seed is chosen for a request without one, so that it can be reported and sent again."""

    def to_json(self) -> str:
        """As READY and ENGINE frames carry it."""
        return json.dumps({**asdict(self), "honours": sorted(self.honours)})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of `to_json`. Raises ValueError for anything else."""
        try:
            given = json.loads(text)
            limits, honours = Limits(**given["limits"]), frozenset(given["honours"])
            return cls(given["kind"], limits, honours, bool(given["seeds"]))
        except (KeyError, TypeError) as error:
            raise ValueError("it is not the declaration of an engine") from error


class Engine(Protocol):
    """One loaded engine. One thread submits and another iterates `steps`; both may `cancel`."""

    @property
    def limits(self) -> Limits:
        """What it can accept, known once it is loaded."""

    def __init__(self, engine_dir: Path) -> None:
        """Load the engine; return when it can generate. Raises `CogTritonError`."""

    def submit(self, request: Request) -> None:
        """Queue a request that is within `limits` and asks only for what the catalogue says is honoured.

        Raises `CogTritonError` for one that can never run; never blocks for long.
        """

    def cancel(self, request_id: int) -> None:
        """Stop a request at the next step: its last output says CANCELLED. An unknown id is ignored."""

    def steps(self) -> Iterator[Sequence[Output]]:
        """Yield the outputs of each step as they arise; end after `shutdown`."""

    def shutdown(self) -> None:
        """Cancel everything and let `steps` end."""


@runtime_checkable
class Narrower(Protocol):
    """An engine that, as configured, does not do everything that its kind can."""

    lacks: frozenset[str]
    """The part of what the catalogue says is honoured."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """What an engine is doing; each is a count below 2^32."""

    active_requests: int = 0
    queued_requests: int = 0
    kv_cache_blocks: int = 0  # 0: the engine has none, or does not count them
    kv_cache_blocks_used: int = 0


@runtime_checkable
class HasStatistics(Protocol):
    """An engine that reports what it is doing."""

    def statistics(self) -> Statistics:
        """The latest numbers, from any thread; never blocks."""
