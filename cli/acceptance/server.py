"""`cog-triton serve`, with a client of OpenAI's API: the way a user works."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx2
import yaml
from prometheus_client.parser import text_string_to_metric_families

from shared.cog.server import free_port
from shared.errors import CogTritonError, from_text
from shared.layout import PROJECT_ROOT
from shared.signals import in_words

from .check import Unable

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

COMMAND = (sys.executable, "-m", "cli")
"""The command line, run by the current interpreter."""
_READY_SECONDS = 900
_ANSWER_SECONDS = 300
_POLL_SECONDS = 0.1
_END_SECONDS = 30
_PREDICTIONS = "cog_triton_predictions"


def last_error(log: str) -> CogTritonError | None:
    """The last coded error in a log."""
    return next((error for line in reversed(log.splitlines()) if (error := from_text(line))), None)


def command_of(pid: int) -> str:
    """The command line of a process; empty when there is none."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return command.replace(b"\0", b" ").decode(errors="replace").strip()


class Answer(NamedTuple):
    """A text that was generated, and how many tokens it has."""

    text: str
    tokens: int
    reason: str


class Refused(Exception):
    """An error that the server answered with; the text is that error's."""


class Server:
    """One engine, being served. Its output is in `log`."""

    def __init__(self, engine: Path, folder: Path, arguments: Mapping[str, object]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        triton = free_port()
        self._generate = f"http://127.0.0.1:{triton}/v2/models/ensemble/generate"
        self.log = folder / f"{port}.log"
        config = folder / f"{port}.yaml"
        section = {"server": {"tensorrt_llm": {"args": dict(arguments)}}}
        config.write_text(yaml.safe_dump({"instantiate": section}), encoding="utf-8")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*COMMAND, "serve", str(engine), "--port", str(port)],
                cwd=PROJECT_ROOT,
                env=os.environ
                | {"COG_TRITON_CONFIG": str(config), "TRITON_HTTP_ADDRESS": f"127.0.0.1:{triton}"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._http = httpx2.Client(base_url=self.url, timeout=_ANSWER_SECONDS, trust_env=False)

    @property
    def is_alive(self) -> bool:
        """Whether the supervisor runs."""
        return self.process.poll() is None

    def wait_ready(self) -> None:
        """Wait until it accepts predictions. Raises Unable with the coded error of a failed start."""
        until = time.monotonic() + _READY_SECONDS
        while time.monotonic() < until:
            if not self.is_alive:
                raise Unable(
                    str(last_error(self.said()) or f"it ended with {in_words(self.process.returncode)}")
                )
            if self.is_ready():
                return
            time.sleep(_POLL_SECONDS)
        raise Unable(f"it was not ready after {_READY_SECONDS} s")

    def is_ready(self) -> bool:
        """Whether it says that it is ready."""
        try:
            return bool(self._http.get("/health-check").json()["status"] == "READY")
        except httpx2.TransportError:
            return False

    def said(self) -> str:
        """The log so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def complete(self, prompt: str | Sequence[int], max_tokens: int, **more: object) -> Answer:
        """A greedy text, in one answer. Raises Refused."""
        answer = self._http.post("/v1/completions", json=_body(prompt, max_tokens, more)).json()
        _raise_error(answer)
        choice = answer["choices"][0]
        return Answer(choice["text"], answer["usage"]["completion_tokens"], choice["finish_reason"])

    def generate(self, prompt: str, max_tokens: int) -> str:
        """A greedy text from Triton's model `ensemble`: the engine gives one answer. Raises Refused."""
        body = {"text_input": prompt, "max_tokens": max_tokens, "stream": False}
        answer = self._http.post(self._generate, json=body).json()
        if "error" in answer:
            raise Refused(answer["error"])
        return str(answer["text_output"])

    def stream(self, prompt: str | Sequence[int], max_tokens: int, **more: object) -> Generator[str]:
        """The pieces of a greedy text as they come. Leaving it early cancels it. Raises Refused."""
        body = _body(prompt, max_tokens, more) | {"stream": True}
        with self._http.sse("/v1/completions", method="POST", json=body) as source:
            if not source.response.is_success:
                _raise_error(json.loads(source.response.read()))
            for event in source:
                if event.data == "[DONE]":
                    return
                part = json.loads(event.data)
                _raise_error(part)
                yield part["choices"][0]["text"]

    def succeeded(self) -> int:
        """How many predictions succeeded, by its own count."""
        told = text_string_to_metric_families(self._http.get("/metrics").text)
        counts = (sample for family in told if family.name == _PREDICTIONS for sample in family.samples)
        return sum(int(count.value) for count in counts if count.labels["outcome"] == "succeeded")

    def processes(self) -> dict[int, str]:
        """The processes below the supervisor: id and command line."""
        parents = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
        found = {self.process.pid}
        while more := {child for child, parent in parents.items() if parent in found} - found:
            found |= more
        return {pid: command_of(pid) for pid in found - {self.process.pid}}

    def stop(self) -> int:
        """End it as a platform does, with SIGTERM; return the exit status."""
        if self.is_alive:
            self.process.terminate()
        try:
            self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
        self._http.close()
        return self.process.wait()


def _body(prompt: str | Sequence[int], max_tokens: int, more: Mapping[str, object]) -> dict[str, Any]:
    return {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, **more}


def _raise_error(answer: Mapping[str, Any]) -> None:
    if "error" in answer:
        raise Refused(answer["error"]["message"])
