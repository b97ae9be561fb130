"""The steps of a TensorRT-LLM build that run one of its tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ToolStep = Literal["convert_to_ft", "quantize", "build"]
Tool = Literal["trtllm-build", "quantize.py", "convert_checkpoint.py"]

MODEL_DIR = "model"
"""Where the tools find the checkpoint of the hub: a directory or link in the work directory."""


@dataclass(frozen=True, slots=True)
class RunTool:
    """Run one tool in the work directory; every path among its arguments is relative to that."""

    step: ToolStep
    tool: Tool
    script: str | None  # in the examples/ tree of TensorRT-LLM; None for an executable
    arguments: tuple[str, ...]  # in their order after the tool or script
    output_dir: str  # what the tool writes; the last step writes the engine

    @property
    def name(self) -> str:
        """The step's name in the config."""
        return self.step
