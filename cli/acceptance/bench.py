"""What the checks work with: an engine, and a server that is kept while needed. One class per engine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from abc import ABC, abstractmethod
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict

from runner.lifecycle.machine import read_machine
from runner.text.tokenizer import Tokenizer
from shared.errors import CogTritonError, PartNotInstalled
from shared.layout import PROJECT_ROOT, Layout
from shared.signals import in_words

from .check import Skip, Unable
from .server import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from shared.artifact import EngineDirectory

_INSIDE_SECONDS = 900


class Likeliest(TypedDict):
    """The likeliest tokens after a prompt, and how much likelier each was than the next (in logits)."""

    tokens: list[int]
    margins: list[float]


class Bench(ABC):
    """One run of the checks, on one model, in a directory of its own."""

    kind: ClassVar[str]
    """The engine's name in configs."""
    title: ClassVar[str]
    """The engine's usual name."""
    sure: ClassVar[float]
    """How much likelier (in logits) a token must be than the next one for our engine to choose it too."""

    def __init__(self, model: Path, directory: Path, other: dict[str, Any] | None = None) -> None:
        """`other` is the report of another run."""
        self.model = model
        self.directory = directory
        self.other = other
        self.texts: dict[str, str] = {}
        """The greedy texts that were served, by prompt: another image is compared with them."""
        self._variants: set[str] = set()
        self._server: tuple[object, Server] | None = None

    # The environment

    @cached_property
    def python(self) -> Path:
        """The interpreter of the engine's environment. Raises PartNotInstalled."""
        return Layout.current().engine_python(self.kind)

    def ask_inside(self, *question: str) -> Any:
        """The answer of the engine package's inside.py, run in the engine's environment."""
        script = Path(__file__).with_name(self.kind) / "inside.py"
        done = self.run([str(self.python), "-P", str(script), *question])
        if done.returncode:
            raise Unable(last_line(done.stderr) or f"it ended with {in_words(done.returncode)}")
        return json.loads(done.stdout.splitlines()[-1])

    def run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a program of the engine's environment until it ends, and end what it leaves.

        What it leaves, such as vLLM's engine core, has its output too: so that goes to files. Raises Unable.
        """
        environment = os.environ | {"PYTHONPATH": str(PROJECT_ROOT)}
        with TemporaryFile("w+") as out, TemporaryFile("w+") as err:
            process = subprocess.Popen(
                command, stdout=out, stderr=err, env=environment, start_new_session=True
            )
            try:
                status = process.wait(_INSIDE_SECONDS)
            except subprocess.TimeoutExpired:
                raise Unable(f"{' '.join(command[1:4])} did not end within {_INSIDE_SECONDS} s") from None
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(command, status, out.read(), err.read())

    @cached_property
    def gpus(self) -> int:
        """How many GPUs there are."""
        try:
            return len(read_machine(1).gpus)
        except CogTritonError:
            return 0

    # Engines

    @property
    @abstractmethod
    def engine(self) -> EngineDirectory:
        """The engine that most checks use. Raises Unable and Skip."""

    @property
    @abstractmethod
    def places(self) -> int:
        """How many requests it runs at the same time."""

    @abstractmethod
    def likeliest(self, prompts: Sequence[Sequence[int]], count: int) -> list[Likeliest]:
        """Which `count` tokens follow each prompt, according to a program other than our engine process."""

    def variant(self, name: str, engine: EngineDirectory, change: Callable[[Path], None]) -> Path:
        """A changed copy of an engine. Its files are links: `change` replaces them."""
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
        """The ready server of an engine (default: the usual one) with these server arguments.

        The previous server is ended if it is a different one.
        """
        try:
            _ = Layout.current().tritonserver
        except PartNotInstalled:
            raise Skip("Triton is not here: engines are served in a runner's image") from None
        place = engine or self.engine.path
        wanted = (place, tuple((arguments or {}).items()))
        if self._server is None or self._server[0] != wanted or not self._server[1].is_alive:
            self.end_server()
            server = Server(place, self.directory / "serve", arguments or {})
            self._server = wanted, server
            server.wait_ready()
        return self._server[1]

    def end_server(self) -> None:
        """End the server."""
        if self._server is not None:
            self._server[1].stop()
            self._server = None

    # Text

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The model's, as the runner reads it."""
        return Tokenizer.load(self.engine.tokenizer_files)


def _linked(source: str, target: str) -> None:
    try:
        os.link(Path(source).resolve(), target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def replace(path: Path, content: bytes) -> None:
    """Replace the content of a variant's file."""
    path.unlink(missing_ok=True)
    path.write_bytes(content)


def last_line(text: str) -> str:
    """The last line that is not blank."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""
