"""A server that is started, loaded and ended: all its tokens counted, and what it told when something failed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.gpu.serving.machine import below, cpu_per_token, cpu_seconds
from tests.gpu.serving.model import (
    MODEL_NAME,
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    Burst,
    prompt_ids,
    prompt_text,
    summary,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).resolve().parents[3]
_START_SECONDS = 300
_RUN_SECONDS = 90
_END_SECONDS = 20
_LOG_LINES = 60  # of each log, when something failed


class Report:
    """Every figure, written as soon as it is known; with what is the same for all of a call."""

    def __init__(self, directory: Path, common: dict[str, Any]) -> None:
        self._directory = directory
        self._common = common
        self.figures: list[dict[str, Any]] = []

    def add(self, side: str, **figures: Any) -> None:
        self.figures.append({"side": side, **figures, **self._common})
        (self._directory / "report.json").write_text(json.dumps(self.figures, indent=1))
        print(side, json.dumps(figures), flush=True)

    @contextmanager
    def common(self, **common: Any) -> Iterator[None]:
        """What is the same for all figures meanwhile."""
        before = self._common
        self._common = before | common
        try:
            yield
        finally:
            self._common = before

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """A step whose failure is told, with the ends of the logs; what comes after it goes on."""
        try:
            yield
        except Exception as failed:
            self.add(f"{name} failed", told=f"{type(failed).__name__}: {failed}")
            traceback.print_exc()
            for log in sorted(self._directory.glob("*.log")):
                lines = log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
                sys.stderr.write("\n".join([f"--- {log.name}", *lines, ""]))
            sys.stderr.flush()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def cog_body(prompt_tokens: int = PROMPT_TOKENS) -> dict[str, Any]:
    return {
        "input": {
            "prompt": prompt_text(prompt_tokens),
            "max_tokens": OUTPUT_TOKENS,
            "temperature": 1.0,
            "top_p": 1.0,
        }
    }


def openai_body(prompt_tokens: int = PROMPT_TOKENS) -> dict[str, Any]:
    return {
        "model": MODEL_NAME,
        "prompt": prompt_ids(prompt_tokens),
        "max_tokens": OUTPUT_TOKENS,
        "temperature": 1.0,
        "top_p": 1.0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


@contextmanager
def server(command: list[str], environment: dict[str, str], log: Path, ready_url: str) -> Iterator[int]:
    """A server in a session of its own, from when it answers until all its processes are gone."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not answers(ready_url):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{log.stem} is not ready")
            time.sleep(0.5)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
        end(process.pid)


def end(session: int) -> None:
    """Kill what is left of it."""
    for pid in below(session):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.HTTPError):
        return False


def measure(
    client: Path, port: int, path: str, body: dict[str, Any], streams: int, pid: int
) -> dict[str, Any]:
    """One burst of streams, all of whose tokens were counted."""
    before = cpu_seconds(pid)
    done = subprocess.run(
        [client, "127.0.0.1", str(port), path, str(streams), str(OUTPUT_TOKENS), str(_RUN_SECONDS), "any"],
        input=json.dumps(body).encode(),
        capture_output=True,
        check=True,
    )
    after = cpu_seconds(pid)
    told = json.loads(done.stdout)
    first = told["time_to_first_token"]
    tokens = told["tokens"]
    return {
        "streams": streams,
        "whole": told["whole"],
        "refused": told["refused"],
        "tokens_per_second": tokens / told["seconds"],
        "time_to_first_token": summary(first) if first else None,
        "gap": told["gap"],
        "chunks_per_token": told["chunks"] / max(tokens, 1),
        "cpu_us_per_token": cpu_per_token(before, after, tokens),
    }


def bursts(report: Report, client: Path, port: int, pid: int, wanted: Iterable[Burst]) -> None:
    """These through both APIs of our front, after some streams that warm it up."""
    apis = {"cog": ("/predictions", cog_body), "openai": ("/v1/completions", openai_body)}
    for path, body in apis.values():
        measure(client, port, path, body(), 8, pid)
    for streams, prompt_tokens in wanted:
        for name, (path, body) in apis.items():
            figures = measure(client, port, path, body(prompt_tokens), streams, pid)
            report.add(f"runner, {name}", **figures, prompt_tokens=prompt_tokens)
