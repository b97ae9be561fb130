"""vLLM's executors, which end with the engine process.

The engine core is a process of vLLM's own. If the engine process were killed, it would stay, with its GPU
memory (vLLM issues 25850, 34643, 55510); the executor is the first code of ours that runs in it. Its workers
follow it through a pipe.
"""

from __future__ import annotations

import ctypes
import signal
import traceback
from copy import copy
from typing import Any

from llguidance import LLMatcher
from vllm.v1.executor.abstract import Executor
from vllm.v1.executor.multiproc_executor import MultiprocExecutor
from vllm.v1.executor.uniproc_executor import UniProcExecutor
from vllm.v1.structured_output.backend_guidance import GuidanceBackend, GuidanceGrammar

from runner.engines.vllm.grammar_check import LIMITS

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Be killed when the thread that started this process ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class LimitedGrammar(GuidanceGrammar):  # type: ignore[misc] # vLLM is in another environment
    """What one text is held to. One that becomes too complex on the way ends its text as an error."""

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """Advance, but not past an error: the mask then allows only the end of the text, which would look
        complete.
        """
        return not self.ll_matcher.is_error() and super().accept_tokens(request_id, tokens)

    def check_error(self) -> None:
        """Says nothing: vLLM's own logs the text and the structure, which are the user's."""


def limit_grammars() -> None:
    """Bound what following a grammar may cost the core in one step: everybody's streams wait for it.

    vLLM has no setting for the limits of llguidance.
    """
    compiled = GuidanceBackend.compile_grammar

    def compile_limited(backend: GuidanceBackend, *asked: Any, **further: Any) -> GuidanceGrammar:
        # It keeps the structure in the backend, which all threads share: one could get that of another.
        backend = copy(backend)
        compiled(backend, *asked, **further)
        matcher = LLMatcher(backend.ll_tokenizer, backend.serialized_grammar, log_level=0, limits=LIMITS)
        return LimitedGrammar(matcher, backend.ll_tokenizer, backend.vocab_size)

    GuidanceBackend.compile_grammar = compile_limited


def _add_lora(worker: Any, asked: Any) -> str:
    """In each worker: why it cannot use an adapter; empty if it can."""
    try:
        worker.add_lora(asked)
    except Exception as problem:
        traceback.print_exc()  # as vLLM's worker would: the sender is told one line of it
        return str(problem) or type(problem).__name__
    return ""


class _Mortal(Executor):  # type: ignore[misc] # as above
    """What both kinds do before and besides what vLLM's do."""

    def _init_executor(self) -> None:
        die_with_parent()
        limit_grammars()
        super()._init_executor()

    def add_lora(self, lora_request: Any) -> bool:
        """Raises RuntimeError when a worker cannot use the adapter; afterwards none holds it.

        vLLM's own leaves one in place whose weights are read, but do not fit. With several workers, it also
        leaves the answers after the first that is an error: each is then taken for that to a later call.
        """
        reasons = self.collective_rpc(_add_lora, args=(lora_request,))
        if reason := next(filter(None, reasons), None):
            self.remove_lora(lora_request.lora_int_id)
            raise RuntimeError(reason)
        return True


class MortalUniProcExecutor(_Mortal, UniProcExecutor):  # type: ignore[misc] # as above
    """One GPU, in the engine core itself."""


class MortalMultiprocExecutor(_Mortal, MultiprocExecutor):  # type: ignore[misc] # as above
    """One worker process for each GPU of this host."""


def mortal(executor: type[Executor]) -> type[Executor]:
    """The same executor, ending with the engine process; one of another kind is unchanged."""
    return {UniProcExecutor: MortalUniProcExecutor, MultiprocExecutor: MortalMultiprocExecutor}.get(
        executor, executor
    )
