"""TensorRT-LLM itself: what is imported, what it accepts, and the libraries it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.acceptance.check import Check, Outcome

if TYPE_CHECKING:
    from .bench import TensorRTLLMBench

VERSION = "1.2.1"


def _listed(problems: list[str], none: str) -> Outcome:
    return Outcome(none, "; ".join(problems) or none)


def _import(bench: TensorRTLLMBench) -> Outcome:
    return Outcome(VERSION, bench.ask_inside("versions")["tensorrt_llm"])


def _tensorrt(bench: TensorRTLLMBench) -> Outcome:
    expected = "a version, by the distribution tensorrt_cu13"
    found = bench.ask_inside("versions")["tensorrt_cu13"]
    return Outcome(expected, expected if found[:1].isdigit() else found)


def _parameters(bench: TensorRTLLMBench) -> Outcome:
    return _listed(bench.ask_inside("parameters"), "all are taken")


def _refusals(bench: TensorRTLLMBench) -> Outcome:
    taken = bench.ask_inside("refusals")
    return Outcome("all are refused", f"taken: {', '.join(taken)}" if taken else "all are refused")


def _libraries(bench: TensorRTLLMBench) -> Outcome:
    return _listed(bench.ask_inside("libraries"), "all are loaded")


_BINDING = "cpp/tensorrt_llm/nanobind/executor, near 1.2.1"

CHECKS = (
    Check(
        "import",
        f"tensorrt_llm.bindings.executor can be imported, and is version {VERSION}",
        "tensorrt_llm/__init__.py and _common.py: plugins and MPI are initialised by the import",
        _import,
    ),
    Check(
        "tensorrt",
        "the installed distributions say which TensorRT there is",
        "requirements.txt of TensorRT-LLM: tensorrt ~=10.14.1, which is tensorrt_cu13",
        _tensorrt,
    ),
    Check(
        "parameters",
        "the binding accepts every keyword that the engine passes, and has every FinishReason",
        f"{_BINDING}: executorConfig.cpp, request.cpp",
        _parameters,
    ),
    Check(
        "refusals",
        "the binding refuses the values that we refuse first with a code of ours",
        "cpp/tensorrt_llm/executor/kvCacheConfig.cpp and samplingConfig.cpp",
        _refusals,
    ),
    Check(
        "libraries",
        "every shared library of the package can be loaded, and libpython by both its names",
        "tensorrt_llm/__init__.py opens libpython; the wheel's libraries need MPI, NCCL and CUDA",
        _libraries,
    ),
)
