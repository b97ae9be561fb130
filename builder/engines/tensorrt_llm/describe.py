"""The step after the tools: what the engine is, and where it works, for its manifest."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from builder.convert import run_child
from builder.engines.tensorrt_llm import probe
from builder.step import BuiltWith
from shared.errors import ConversionFailed
from shared.layout import Layout

if TYPE_CHECKING:
    from pathlib import Path

    from builder.step import Build
    from shared.progress import StepProgress


@dataclass(frozen=True, slots=True)
class Describe:
    """Set `Build.built_with` from the engine's config.json, the environment that built it, and the GPU."""

    name: ClassVar[str] = "describe"

    def run(self, build: Build, progress: StepProgress) -> None:  # noqa: ARG002  the protocol's
        """Raises ConversionFailed for an incomplete engine."""
        lines: list[str] = []
        python = Layout.current().engine_python("tensorrt_llm")
        run_child(self.name, [str(python), probe.__file__], cwd=build.work_dir, on_line=lines.append)
        facts: dict[str, Any] = json.loads(lines[-1])
        engine = _read(build.engine_dir / "config.json")
        # The environment that wrote the engine knows best; config.json has neither TensorRT nor the GPU.
        version = engine.get("version", facts["tensorrt_llm_version"])
        ranks = engine.get("pretrained_config", {}).get("mapping", {}).get("world_size", 1)
        for rank in range(ranks):
            if not (build.engine_dir / f"rank{rank}.engine").is_file():
                raise ConversionFailed(step="build", reason=f"the engine has no rank{rank}.engine")
        facts |= {"engine_version": version, "tensorrt_llm_version": version, "ranks": ranks}
        build.built_with = BuiltWith(**facts)


def _read(path: Path) -> dict[str, Any]:
    """The config.json of an engine, as tensorrt_llm/builder.py (EngineConfig) writes it."""
    try:
        content = json.loads(path.read_bytes())
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise ConversionFailed(step="build", reason="the engine's config.json is not a JSON object")
    return content
