"""The kinds of engine: one record each. Everything that asks "which engine" reads it here.

To add an engine, write a module with a class that is a `runner.protocol.engine.Engine`, and a record below.
Standard library only: engine processes import it, each in an environment of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from runner.engines.tensorrt_llm.settings import rank_count
from runner.protocol.engine import Declaration, Narrower, SamplingParameters
from shared.errors import EngineStartFailed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from runner.protocol.engine import Engine

_EVERY_PARAMETER = frozenset(field.name for field in fields(SamplingParameters))


def _one_rank(_: Path) -> int:
    return 1


def _rank_processes(ranks: int) -> int:
    return ranks


def _vllm_processes(ranks: int) -> int:
    """The engine process and the core, and with several GPUs a worker for each."""
    return 2 if ranks == 1 else 2 + ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineKind:
    """What is known about an engine before it is loaded; `Engine.limits` has what only a loaded one knows."""

    name: str
    implementation: str
    """`module:Class`, imported in the engine's own environment when one is loaded."""
    honours: frozenset[str]
    """Names of the `SamplingParameters` and of the optional parts of a `Request` that have an effect."""
    needs_cuda: tuple[int, int] | None = None
    """The CUDA version that its wheels are built for (requirements/engine-*.txt); None: it needs no GPU."""
    ranks: Callable[[Path], int] = _one_rank
    """How many processes serve the engine in a directory, one for each GPU. Raises EngineStartFailed,
    EngineOfAnotherVersion and RanksMismatch.
    """

    processes: Callable[[int], int] = _rank_processes
    """How many processes load its libraries, by the number of ranks."""

    seed_is_free: bool = True
    """Whether a request with a seed costs no more than one without."""

    @property
    def seeds(self) -> bool:
        """As in `Declaration`."""
        return "seed" in self.honours and self.seed_is_free

    def declaration(self, engine: Engine) -> Declaration:
        """What a loaded engine of this kind declares."""
        lacks = engine.lacks if isinstance(engine, Narrower) else frozenset[str]()
        return Declaration(self.name, engine.limits, self.honours - lacks, self.seeds)


ENGINES = {
    kind.name: kind
    for kind in (
        EngineKind(
            name="mock",
            implementation="runner.engines.mock:MockEngine",
            # It makes no choice that a parameter could change.
            honours=_EVERY_PARAMETER | {"log_probs"},
        ),
        EngineKind(
            name="ctranslate2",
            implementation="runner.engines.ctranslate2:CTranslate2Engine",
            honours=frozenset({"top_k", "top_p", "temperature", "min_tokens", "repetition_penalty"}),
        ),
        EngineKind(
            name="tensorrt_llm",
            implementation="runner.engines.tensorrt_llm.engine:TensorRTLLMEngine",
            # Its executor weighs the lengths of beams alone, and there are none.
            honours=_EVERY_PARAMETER - {"length_penalty"} | {"bad_words"},
            needs_cuda=(13, 0),
            ranks=rank_count,
        ),
        EngineKind(
            name="vllm",
            implementation="runner.engines.vllm.engine:VLLMEngine",
            # It has no beams, whose lengths could be weighed.
            honours=_EVERY_PARAMETER - {"length_penalty"}
            | {"bad_words", "logit_bias", "log_probs", "structured_output", "lora", "cache_salt", "priority"},
            # One of its two model runners samples requests with seeds one by one.
            seed_is_free=False,
            needs_cuda=(13, 0),
            processes=_vllm_processes,
        ),
    )
}


def find_engine(name: str) -> EngineKind:
    """The record of that name. Raises EngineStartFailed when there is none."""
    try:
        return ENGINES[name]
    except KeyError:
        reason = f'there is no engine "{name}", only {", ".join(ENGINES)}'
        raise EngineStartFailed(reason=reason) from None
