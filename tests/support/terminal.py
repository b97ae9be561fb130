"""A user at a terminal: commands as they are typed, and what comes of each.

    user.write("config.yaml", "engine: mock")
    user.types("cog-triton build config.yaml -o engine.tar")
    user.starts("cog-triton serve engine.tar --port $PORT", "localhost:$PORT/health-check", says="READY")
    assert user.types("curl localhost:$PORT/predictions -d '{...}'").json["status"] == "succeeded"

No shell runs: a command is cut into words as a shell would cut it, `$NAME` is filled in, `NAME=VALUE` in front is for
that command alone, and `cd` and `export` are understood. Pipes and redirections are not: see `typed` and curl's `-o`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import string
import subprocess
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from shared.cog.server import free_port
from shared.layout import PROJECT_ROOT
from tests.support.processes import MARK, wait_gone

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

COMMAND_SECONDS = 240
READY_SECONDS = 120
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_FOR_A_SHELL = {"|", "||", "&", "&&", ";", ">", ">>", "<", "<<<", "2>&1"}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command left on the terminal."""

    status: int
    text: str
    """Its standard output."""
    errors: str
    """Its standard error."""

    @property
    def json(self) -> Any:
        """The standard output, which is JSON."""
        return json.loads(self.text)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The data of the server-sent events that it printed."""
        lines = self.text.splitlines()
        return [json.loads(line.removeprefix("data:")) for line in lines if line.startswith("data:")]


class Started:
    """A program in the background."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def output(self) -> str:
        """What it has printed so far."""
        return self._log.read_text()

    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def stop(self) -> int:
        """Ctrl-C, like SIGTERM for what has no terminal; returns the exit status."""
        if self.runs():
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            raise


class Terminal:
    """See the module. A context manager: whatever was started ends with it, and nothing may be left."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        """`folder`: where it opens. `variables`: beside those of this process; PORT is a free one."""
        self.folder = folder
        self._mark = uuid.uuid4().hex
        self._started: list[Started] = []
        self._logs = folder.parent / f"{folder.name}-logs"
        self._logs.mkdir()
        programs = [str(PROJECT_ROOT / ".venv/bin"), os.environ.get("PATH", os.defpath)]
        self.variables = {
            # A user has a HOME of their own, and so the default for WEIGHTS_CACHE.
            **{name: value for name, value in os.environ.items() if name != "WEIGHTS_CACHE"},
            "PATH": os.pathsep.join(programs),
            "PORT": str(free_port()),
            MARK: self._mark,
            "ENGINE_ENVIRONMENT": MARK,
            **variables,
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for started in reversed(self._started):
            started.stop()
        left = wait_gone(self._mark)
        assert left == {}

    def write(self, name: str, text: str) -> Path:
        """Save a file, as with an editor."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def types(self, command: str, *, typed: str = "", status: int = 0) -> Answer:
        """Type a command and wait for its end, which must have this exit status.

        `typed`: what is typed then, or piped into it. Raises AssertionError with what it said.
        """
        words, variables = self._words(command)
        if words[0] == "cd":
            self.folder = (self.folder / words[1]).resolve()
            return Answer(0, "", "")
        if words[0] == "export":
            for word in words[1:]:
                name, _, self.variables[name] = word.partition("=")
            return Answer(0, "", "")
        done = subprocess.run(
            words,
            cwd=self.folder,
            env=variables,
            input=typed,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        said = f"$ {command}\n{done.stdout}\n{done.stderr}\nexit status {done.returncode}"
        assert done.returncode == status, f"{said}, not {status}"
        return Answer(done.returncode, done.stdout, done.stderr)

    def starts(self, command: str, address: str = "", *, says: str = "") -> Started:
        """Type a command into another terminal, and wait until `address` answers with what `says` says."""
        words, variables = self._words(command)
        log = self._logs / f"{len(self._started)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                words,
                cwd=self.folder,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        started = Started(process, log)
        self._started.append(started)
        deadline = time.monotonic() + READY_SECONDS
        while address and not self._says(address, says):
            assert started.runs(), f"$ {command}\n{started.output}"
            assert time.monotonic() < deadline, f"{address} did not say {says}\n{started.output}"
            time.sleep(0.1)
        return started

    def _says(self, address: str, text: str) -> bool:
        words, variables = self._words(f"curl --silent {address}")
        done = subprocess.run(words, env=variables, capture_output=True, text=True, check=False)
        return done.returncode == 0 and text in done.stdout

    def _words(self, command: str) -> tuple[list[str], dict[str, str]]:
        """A command's words, and its environment."""
        words = shlex.split(command.replace("\\\n", " "), comments=True)
        assert not _FOR_A_SHELL & set(words), f"no shell runs here: {command}"
        filled = {**self.variables, "PWD": str(self.folder)}
        words = [string.Template(word).safe_substitute(filled) for word in words]
        variables = dict(self.variables)
        while len(words) > 1 and _ASSIGNMENT.match(words[0]):
            name, _, value = words.pop(0).partition("=")
            variables[name] = value
        return words, variables
