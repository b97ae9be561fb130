"""What the checks work with: engines that are built once, and a server that is kept while it is asked for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from runner.lifecycle.machine import read_machine
from runner.text.tokenizer import Tokenizer
from shared.artifact import EngineDirectory, extract_archive
from shared.errors import CogTritonError, PartNotInstalled, from_text
from shared.layout import PROJECT_ROOT, Layout

from . import inside
from .check import Skip, Unable
from .server import COMMAND, Server

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_MOST_BYTES = 1 << 40
_INSIDE_SECONDS = 900
LONGEST_PROMPT = 512
"""max_num_tokens of the engines that are built: without chunked context no prompt is longer."""


class Bench:
    """One run of the checks: for a model, in a directory of its own."""

    def __init__(
        self, model: Path, directory: Path, engine: str | None = None, other: dict[str, Any] | None = None
    ) -> None:
        """`engine` is an engine.tar that is there already, `other` the report of another run."""
        self.model = model
        self.directory = directory
        self.other = other
        self.texts: dict[str, str] = {}
        """The greedy texts that were served, by prompt: what another image is compared with."""
        self._given = engine
        self._engines: dict[str, EngineDirectory | Unable] = {}
        self._variants: set[str] = set()
        self._server: tuple[object, Server] | None = None

    # The environment

    @cached_property
    def python(self) -> Path:
        """The interpreter of TensorRT-LLM's environment. Raises E4000."""
        return Layout.current().engine_python("tensorrt_llm")

    def ask_inside(self, *question: str) -> Any:
        """What inside.py answers in the engine's environment."""
        done = self.run([str(self.python), inside.__file__, *question])
        if done.returncode:
            raise Unable(_last_line(done.stderr) or f"it ended with status {done.returncode}")
        return json.loads(done.stdout.splitlines()[-1])

    def run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a program of the engine's environment to its end."""
        environment = os.environ | {"PYTHONPATH": str(PROJECT_ROOT)}
        try:
            return subprocess.run(
                command, capture_output=True, text=True, check=False, env=environment, timeout=_INSIDE_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise Unable(f"{Path(command[1]).name} did not end within {_INSIDE_SECONDS} s") from None

    @cached_property
    def gpus(self) -> int:
        """How many GPUs there are."""
        try:
            return len(read_machine(1).gpus)
        except CogTritonError:
            return 0

    # Engines

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

    @property
    def short(self) -> EngineDirectory:
        """The engine of the short form, which most checks are about; the given one, where there is one."""
        return self.built(
            "short",
            {
                "engine": "tensorrt_llm",
                "model": str(self.model),
                "max_batch_size": 8,
                "max_num_tokens": LONGEST_PROMPT,
            },
        )

    def _build(self, name: str, config: Mapping[str, Any]) -> EngineDirectory:
        folder = self.directory / name
        archive = Path(self._given) if self._given and name == "short" else folder / "engine.tar"
        if not (folder / "engine").is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            if not archive.is_file():
                self._make(folder, config, archive)
            with archive.open("rb") as stream:
                extract_archive(stream, folder / "engine", check=lambda _: None, max_bytes=_MOST_BYTES)
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
            raise Unable(str(_last_error(said) or _last_line(said)))

    def variant(self, name: str, engine: EngineDirectory, change: Callable[[Path], None]) -> Path:
        """A changed copy of an engine. Its files are links: `change` writes others in their place."""
        copy = self.directory / "variants" / name
        if name not in self._variants:
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(engine.path, copy, copy_function=_linked)
            change(copy)
            self._variants.add(name)
        return copy

    # Serving

    def serve(
        self,
        engine: Path | None = None,
        arguments: Mapping[str, object] | None = None,
    ) -> Server:
        """The server of an engine (the short form's) with these server arguments, ready.

        The one that was asked for before is ended when this is another.
        """
        try:
            _ = Layout.current().tritonserver
        except PartNotInstalled:
            raise Skip("Triton is not here: engines are served in a runner's image") from None
        place = engine or self.short.path
        wanted = (place, tuple((arguments or {}).items()))
        if self._server is None or self._server[0] != wanted or not self._server[1].is_alive:
            self.end_server()
            server = Server(place, self.directory / "serve", arguments or {})
            self._server = wanted, server
            server.wait_ready()
        return self._server[1]

    def end_server(self) -> None:
        """End what is being served."""
        if self._server is not None:
            self._server[1].stop()
            self._server = None

    # Text

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The model's, as the runner reads it."""
        return Tokenizer.load(self.short.tokenizer_files)


def _linked(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def replace(path: Path, content: bytes) -> None:
    """Put other content in the place of a file of a variant."""
    path.unlink(missing_ok=True)
    path.write_bytes(content)


def _last_error(text: str) -> CogTritonError | None:
    return next((error for line in reversed(text.splitlines()) if (error := from_text(line))), None)


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""
