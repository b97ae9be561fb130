"""Engines of vLLM: the model where it is, and engine arguments."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from builder.in_place import in_place
from cli.acceptance.bench import Bench
from cli.acceptance.generation import references
from shared.artifact import EngineDirectory
from shared.progress import stderr_progress

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cli.acceptance.bench import Likeliest
    from cli.acceptance.server import Server
    from shared.config import VLLMConfig

_PLACES = 8
_ARGUMENTS = {
    # Few, so that a check can fill them all.
    "max_num_seqs": _PLACES,
    # What is computed together affects the last bits of logits, and the same prompts are sent again.
    "enable_prefix_caching": False,
}


class VLLMBench(Bench):
    """See `Bench`."""

    kind = "vllm"
    title = "vLLM"
    sure = 0.0

    def __init__(
        self,
        config: VLLMConfig,
        directory: Path,
        other: dict[str, Any] | None = None,
        folder: Path | None = None,
    ) -> None:
        """Paths in `config` start at `folder`."""
        super().__init__(Path(config.model), directory, other)
        self._config = config.model_copy(update={"engine_args": _ARGUMENTS | config.engine_args})
        self._folder = folder
        self._longest = directory / "max_model_len"

    @cached_property
    def engine(self) -> EngineDirectory:
        """The engine of the model on one GPU."""
        return self._served()

    @cached_property
    def on_two_gpus(self) -> EngineDirectory:
        """The same on two."""
        return self._served(tensor_parallel_size=2)

    @property
    def places(self) -> int:
        return int(str(self._config.engine_args["max_num_seqs"]))

    @property
    def max_model_len(self) -> int:
        """The longest sequence, according to vLLM itself."""
        references(self)
        return int(self._longest.read_text(encoding="utf-8"))

    def likeliest(self, prompts: Sequence[Sequence[int]], count: int) -> list[Likeliest]:
        """According to vLLM's own LLM class, with the same engine arguments."""
        asked = [",".join(map(str, prompt)) for prompt in prompts]
        told = self.ask_inside("reference", str(self.engine.path), str(count), *asked)
        self._longest.write_text(str(told["max_model_len"]), encoding="utf-8")
        answers: list[Likeliest] = told["answers"]
        return answers

    def serve(self, engine: Path | None = None, arguments: Mapping[str, object] | None = None) -> Server:
        """See `Bench`. The references come first: they need the memory of the GPU that a server takes."""
        references(self)
        return super().serve(engine, arguments)

    def _served(self, **more: object) -> EngineDirectory:
        """An engine of the model, in place."""
        config = self._config.model_copy(update=more)
        return EngineDirectory(
            in_place(
                config,
                self.directory / "engines",
                folder=self._folder,
                hf_token=os.environ.get("HF_TOKEN"),
                progress=stderr_progress(),
            )
        )
