"""An engine for two GPUs: its ranks serve together, and end together."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cli.acceptance.check import Check, Outcome, Skip, Unable
from cli.acceptance.generation import greedy_texts
from cli.acceptance.processes import ends_whole, served_again

if TYPE_CHECKING:
    from cli.acceptance.server import Server

    from .bench import TensorRTLLMBench

_RANKS = 2
_UNFINALIZED = re.compile(r"without calling .?finalize")


def _server(bench: TensorRTLLMBench) -> Server:
    if bench.gpus < _RANKS:
        raise Skip(f"this needs {_RANKS} GPUs, and the machine has {bench.gpus}")
    engine = bench.built(
        "two-gpus", {"engine": "tensorrt_llm", "model": str(bench.model), "tensor_parallel_size": _RANKS}
    )
    return bench.serve(engine.path)


def _ranks(server: Server) -> list[int]:
    return sorted(
        pid
        for pid, command in server.processes().items()
        if "--rank-socket" in command and "--bind-to" not in command
    )


def _two_gpus(bench: TensorRTLLMBench) -> Outcome:
    server = _server(bench)
    if len(ranks := _ranks(server)) != _RANKS:
        raise Unable(f"ranks: {len(ranks)} instead of {_RANKS}")
    return greedy_texts(bench, server)


def _killed(bench: TensorRTLLMBench) -> Outcome:
    return served_again(bench, _server(bench), _ranks, "ranks")


def _end(bench: TensorRTLLMBench) -> Outcome:
    server = _server(bench)
    outcome = ends_whole(server)
    if said := _UNFINALIZED.search(server.said()):
        return Outcome(outcome.expected, f"{outcome.found}; {said[0]}")
    return outcome


CHECKS = (
    Check(
        "two GPUs",
        "as many processes as tp x pp x cp, started by mpirun, serve the engine; rank 0 leads",
        "cpp/tensorrt_llm/executor/executorImpl.cpp: initializeCommAndWorkers; runtime/worldConfig.cpp",
        _two_gpus,
    ),
    Check(
        "a rank that is killed",
        "mpirun ends the other ranks, and the engine is started again",
        "Open MPI's mpirun; no handler of TensorRT-LLM keeps a rank alive",
        _killed,
    ),
    Check(
        "the end of ranks",
        "shutdown() of the leader ends the others, and all of them finalise MPI",
        "cpp/tensorrt_llm/executor/executorImpl.cpp: shutdown; Open MPI's prterun on 'finalize'",
        _end,
    ),
)
