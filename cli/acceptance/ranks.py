"""An engine for two GPUs: its ranks serve together, and end together."""

from __future__ import annotations

import os
import re
import signal
import time
from typing import TYPE_CHECKING

from .check import Check, Outcome, Skip, Unable
from .generation import greedy_texts

if TYPE_CHECKING:
    from .bench import Bench
    from .server import Server

_RANKS = 2
_AGAIN_SECONDS = 900
_GONE_SECONDS = 10
_UNFINALIZED = re.compile(r"without calling .?finalize")


def _server(bench: Bench) -> Server:
    if bench.gpus < _RANKS:
        raise Skip(f"there are {bench.gpus} GPUs, and this needs {_RANKS}")
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


def _two_gpus(bench: Bench) -> Outcome:
    server = _server(bench)
    if len(ranks := _ranks(server)) != _RANKS:
        raise Unable(f"there are {len(ranks)} ranks")
    return greedy_texts(bench, server)


def _killed(bench: Bench) -> Outcome:
    server = _server(bench)
    before = _ranks(server)
    os.kill(before[-1], signal.SIGKILL)
    expected = "other ranks, which serve"
    until = time.monotonic() + _AGAIN_SECONDS
    while time.monotonic() < until:
        ranks = _ranks(server)
        if len(ranks) == _RANKS and not set(ranks) & set(before) and server.is_ready():
            outcome = greedy_texts(bench, server)
            return Outcome(expected, expected if outcome.expected == outcome.found else outcome.found)
        time.sleep(0.1)
    return Outcome(expected, f"the ranks {_ranks(server)} of {before} after {_AGAIN_SECONDS} s")


def _end(bench: Bench) -> Outcome:
    server = _server(bench)
    processes = server.processes()
    status = server.stop()
    until = time.monotonic() + _GONE_SECONDS
    while left := [command for pid, command in processes.items() if _is(pid, command)]:
        if time.monotonic() > until:
            break
        time.sleep(0.1)
    said = _UNFINALIZED.search(server.said())
    problems = [f"left: {command}" for command in left] + ([said[0]] if said else [])
    return Outcome("status 0, nothing left", f"status {status}, {', '.join(problems) or 'nothing left'}")


def _is(pid: int, command: str) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123 - it is no file
            return (
                bool(command) and file.read().replace(b"\0", b" ").decode(errors="replace").strip() == command
            )
    except OSError:
        return False


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
