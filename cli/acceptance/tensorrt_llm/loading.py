"""Engines that must not be loaded: each is refused with the code of the cause."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

from cli.acceptance.bench import replace
from cli.acceptance.check import Check, Outcome, Skip, Unable

if TYPE_CHECKING:
    from pathlib import Path

    from .bench import TensorRTLLMBench

_OTHER = "10.13.0.35"
_EXPECTED = "E2502 EngineOfAnotherVersion"
_HEADER_BYTES = 64


def _refused(bench: TensorRTLLMBench, engine: Path) -> Outcome:
    try:
        bench.serve(engine)
    except Unable as reason:
        said = str(reason)
        return Outcome(_EXPECTED, _EXPECTED if said.startswith(_EXPECTED) else said)
    return Outcome(_EXPECTED, "it is served")


def _other_version(bench: TensorRTLLMBench) -> Outcome:
    if bench.engine.manifest is None:
        raise Skip("the engine has no manifest")

    def change(engine: Path) -> None:
        manifest = json.loads((engine / "manifest.json").read_bytes()) | {"tensorrt_version": _OTHER}
        replace(engine / "manifest.json", json.dumps(manifest).encode())

    return _refused(bench, bench.variant("other-version", bench.engine, change))


def _other_plan(bench: TensorRTLLMBench) -> Outcome:
    def change(engine: Path) -> None:
        plan = engine / "engine/rank0.engine"
        plan.unlink()
        shutil.copyfile(bench.engine.path / "engine" / plan.name, plan)
        with plan.open("r+b") as file:
            file.write(bytes(_HEADER_BYTES))

    return _refused(bench, bench.variant("other-plan", bench.engine, change))


CHECKS = (
    Check(
        "engine of another TensorRT",
        "the manifest's version differs from that of the distribution tensorrt_cu13: refused before the load",
        "TensorRT's developer guide: a plan loads only with the version that built it",
        _other_version,
    ),
    Check(
        "plan that cannot be read",
        "the exception says 'Failed to deserialize cuda engine.', and the cause is an [ERROR] in the log",
        "cpp/tensorrt_llm/runtime/tllmRuntime.cpp and tllmLogger.cpp",
        _other_plan,
    ),
)
