"""Engines of vLLM: the model's files as they are, and the engine arguments beside them."""

from __future__ import annotations

import hashlib
import json
import shutil
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cli.acceptance.bench import Bench, linked
from cli.acceptance.generation import references
from shared import VERSION
from shared.artifact import EngineDirectory, Manifest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cli.acceptance.bench import Likeliest

_PLACES = 8
_ARGUMENTS = {
    # Few, so that a check can fill them all.
    "max_num_seqs": _PLACES,
    # What is computed together decides over the last bits of logits, and the same prompts are sent again.
    "enable_prefix_caching": False,
}
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")


class VLLMBench(Bench):
    """See `Bench`."""

    kind = "vllm"
    title = "vLLM"
    sure = 0.0

    def __init__(
        self,
        model: Path,
        directory: Path,
        other: dict[str, Any] | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """`arguments` are further engine arguments."""
        super().__init__(model, directory, other)
        self._arguments = _ARGUMENTS | dict(arguments or {})
        self._longest = directory / "max_model_len"

    @cached_property
    def engine(self) -> EngineDirectory:
        """Of the model on one GPU."""
        return self.written("engine")

    @cached_property
    def on_two_gpus(self) -> EngineDirectory:
        """The same on two."""
        return self.written("two-gpus", tensor_parallel_size=2)

    @property
    def places(self) -> int:
        return int(self._arguments["max_num_seqs"])

    @property
    def max_model_len(self) -> int:
        """The longest sequence, by vLLM itself."""
        references(self)
        return int(self._longest.read_text(encoding="utf-8"))

    def likeliest(self, prompts: Sequence[Sequence[int]], count: int) -> list[Likeliest]:
        """Of vLLM's own LLM class, with the same engine arguments."""
        self.end_server()  # which holds the GPU's memory
        asked = [",".join(map(str, prompt)) for prompt in prompts]
        told = self.ask_inside("reference", str(self.engine.path), str(count), *asked)
        self._longest.write_text(str(told["max_model_len"]), encoding="utf-8")
        answers: list[Likeliest] = told["answers"]
        return answers

    def written(self, name: str, **config: Any) -> EngineDirectory:
        """An engine of that name, as an archive of it would be unpacked."""
        place = self.directory / name
        shutil.rmtree(place, ignore_errors=True)
        for folder in ("engine", "tokenizer"):
            (place / folder).mkdir(parents=True)
        for file in self.model.iterdir():
            if file.is_file():
                linked(file.resolve(), place / "engine" / file.name)
        for file_name in _TOKENIZER:
            if (self.model / file_name).is_file():
                linked((self.model / file_name).resolve(), place / "tokenizer" / file_name)
        config = {
            "engine": "vllm",
            "model": self.model.name,
            "engine_args": self._arguments,
            **config,
        }
        text = json.dumps(config).encode()
        (place / "config.json").write_bytes(text)
        manifest = Manifest(
            engine="vllm",
            model=self.model.name,
            cog_triton_version=VERSION,
            config_digest=hashlib.sha256(text).hexdigest(),
            files=(),
        )
        (place / "manifest.json").write_bytes(manifest.to_bytes())
        return EngineDirectory(place)
