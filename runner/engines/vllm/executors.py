"""vLLM's executors, which end with the engine process.

The engine core is a process of vLLM's own. If the engine process were killed, it would stay, with its GPU
memory (vLLM issues 25850, 34643, 55510); the executor is the first code of ours that runs in it. Its workers
follow it through a pipe.
"""

from __future__ import annotations

import ctypes
import signal
from typing import TYPE_CHECKING

from vllm.v1.executor.multiproc_executor import MultiprocExecutor
from vllm.v1.executor.uniproc_executor import UniProcExecutor

if TYPE_CHECKING:
    from vllm.v1.executor.abstract import Executor

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Be killed when the thread that started this process ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class MortalUniProcExecutor(UniProcExecutor):  # type: ignore[misc] # vLLM is in another environment
    """One GPU, in the engine core itself."""

    def _init_executor(self) -> None:
        die_with_parent()
        super()._init_executor()


class MortalMultiprocExecutor(MultiprocExecutor):  # type: ignore[misc] # as above
    """One worker process for each GPU of this host."""

    def _init_executor(self) -> None:
        die_with_parent()
        super()._init_executor()


def mortal(executor: type[Executor]) -> type[Executor]:
    """The same executor, ending with the engine process; one of another kind is unchanged."""
    return {UniProcExecutor: MortalUniProcExecutor, MultiprocExecutor: MortalMultiprocExecutor}.get(
        executor, executor
    )
