"""The processes below the engine process: they are noticed when they die, and end with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.acceptance.check import Check, Outcome, Skip, Unable
from cli.acceptance.generation import SURE, greedy_texts
from cli.acceptance.processes import ends_whole, served_again

if TYPE_CHECKING:
    from cli.acceptance.server import Server

    from .bench import VLLMBench

_GPUS = 2
_CORE, _WORKER = "VLLM::EngineCore", "VLLM::Worker"  # what they call themselves


def _called(server: Server, name: str) -> list[int]:
    return sorted(pid for pid, command in server.processes().items() if command.startswith(name))


def _killed(bench: VLLMBench) -> Outcome:
    server = bench.serve()
    if len(_called(server, _CORE)) != 1:
        raise Unable(f"there is no process {_CORE} among {sorted(server.processes().values())}")
    return served_again(bench, server, lambda server: _called(server, _CORE), "engine core processes")


def _end(bench: VLLMBench) -> Outcome:
    return ends_whole(bench.serve())


def _on_two_gpus(bench: VLLMBench) -> Server:
    if bench.gpus < _GPUS:
        raise Skip(f"this needs {_GPUS} GPUs, and the machine has {bench.gpus}")
    return bench.serve(bench.on_two_gpus.path)


def _two_gpus(bench: VLLMBench) -> Outcome:
    server = _on_two_gpus(bench)
    if len(workers := _called(server, _WORKER)) != _GPUS:
        raise Unable(f"workers: {len(workers)} instead of {_GPUS}")
    # Sums over two GPUs round differently from those on one.
    return greedy_texts(bench, server, SURE)


def _killed_worker(bench: VLLMBench) -> Outcome:
    return served_again(bench, _on_two_gpus(bench), lambda server: _called(server, _WORKER), "workers")


def _end_of_two(bench: VLLMBench) -> Outcome:
    return ends_whole(_on_two_gpus(bench))


_DEATH = "vllm/v1/engine/core_client.py: MPClientEngineMonitor; EngineDeadError"
_ENDING = "vllm/v1/engine/core_client.py: shutdown; PR_SET_PDEATHSIG of runner/engines/vllm/executors.py"

CHECKS = (
    Check(
        "an engine core that is killed",
        "its client reports it, or its monitor does, and the engine is started again",
        _DEATH,
        _killed,
    ),
    Check("the end", "the core ends with its client, and its workers with the core", _ENDING, _end),
    Check(
        "two GPUs",
        "with tensor_parallel_size 2 the core starts two workers, which write the same tokens",
        "vllm/v1/executor/multiproc_executor.py",
        _two_gpus,
    ),
    Check(
        "a worker that is killed",
        "the core notices it, tells the client and ends, and the engine is started again",
        "vllm/v1/executor/multiproc_executor.py: monitor_workers",
        _killed_worker,
    ),
    Check("the end of workers", "the workers end with the core", _ENDING, _end_of_two),
)
