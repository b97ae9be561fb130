"""Engines of TensorRT-LLM, each built once."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from cli.acceptance.bench import Bench, last_line
from cli.acceptance.check import Skip, Unable
from cli.acceptance.generation import SURE
from cli.acceptance.server import COMMAND, last_error
from shared.artifact import EngineDirectory, extract_archive
from shared.layout import PROJECT_ROOT

from .built import config_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cli.acceptance.bench import Likeliest

_MAX_BYTES = 1 << 40
LONGEST_PROMPT = 512
"""max_num_tokens of the engines that are built: without chunked context no prompt is longer."""


class TensorRTLLMBench(Bench):
    """See `Bench`."""

    kind = "tensorrt_llm"
    title = "TensorRT-LLM"
    sure = SURE

    def __init__(
        self, model: Path, directory: Path, other: dict[str, Any] | None = None, archive: str | None = None
    ) -> None:
        """`archive` is an existing engine.tar."""
        super().__init__(model, directory, other)
        self._given = archive
        self._engines: dict[str, EngineDirectory | Unable] = {}

    @property
    def engine(self) -> EngineDirectory:
        """The engine of the short form, or the given one."""
        return self.built(
            "short",
            {
                "engine": "tensorrt_llm",
                "model": str(self.model),
                "max_batch_size": 8,
                "max_num_tokens": LONGEST_PROMPT,
            },
        )

    @property
    def places(self) -> int:
        places: int = config_of(self.engine)["build_config"]["max_batch_size"]
        return places

    def likeliest(self, prompts: Sequence[Sequence[int]], count: int) -> list[Likeliest]:
        """The checkpoint's own, computed by transformers in float32."""
        asked = [",".join(map(str, prompt)) for prompt in prompts]
        answers: list[Likeliest] = self.ask_inside("reference", str(self.model), str(count), *asked)
        return answers

    def built(self, name: str, config: Mapping[str, Any]) -> EngineDirectory:
        """The engine of a config, built by `cog-triton build` and unpacked. Raises Unable and Skip."""
        if name not in self._engines:
            try:
                self._engines[name] = self._build(name, config)
            except Unable as reason:
                self._engines[name] = reason
        engine = self._engines[name]
        if isinstance(engine, Unable):
            raise engine
        return engine

    def _build(self, name: str, config: Mapping[str, Any]) -> EngineDirectory:
        folder = self.directory / name
        archive = Path(self._given) if self._given and name == "short" else folder / "engine.tar"
        if not (folder / "engine").is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            if not archive.is_file():
                self._make(folder, config, archive)
            with archive.open("rb") as stream:
                extract_archive(stream, folder / "engine", check=lambda _: None, max_bytes=_MAX_BYTES)
        return EngineDirectory(folder / "engine")

    def _make(self, folder: Path, config: Mapping[str, Any], archive: Path) -> None:
        if not (self.python.parent.parent / "examples").is_dir():
            raise Skip("TensorRT-LLM's examples are not here: engines are built in the builder's image")
        (folder / "config.yaml").write_text(yaml.safe_dump(dict(config)), encoding="utf-8")
        command = [*COMMAND, "build", str(folder / "config.yaml"), "-o", str(archive)]
        with (folder / "build.log").open("w", encoding="utf-8") as log:
            status = subprocess.run(command, cwd=PROJECT_ROOT, stdout=log, stderr=log, check=False).returncode
        if status:
            said = (folder / "build.log").read_text(encoding="utf-8", errors="replace")
            raise Unable(str(last_error(said) or last_line(said)))
