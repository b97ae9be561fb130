"""An engine process, driven over its socket as the bridge drives it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from runner.protocol.engine import FinishReason, Request
from runner.protocol.frames import RequestFrame, StatisticsFrame, Tensor, encode, receive
from runner.protocol.tokens import request_tensors
from shared.layout import PROJECT_ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import IO


class Driver:
    """The bridge's side of the socket."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(20)
        self.connection = connection
        self.frames = receive(connection)

    def send(self, frame) -> None:
        self.connection.sendall(encode(frame))

    def submit(self, request: Request, *extra: Tensor) -> None:
        tensors = tuple(Tensor(*raw) for raw in request_tensors(request))
        self.send(RequestFrame(request.request_id, f"id-{request.request_id}", tensors + extra))

    def run(self, *requests: Request) -> tuple[dict[int, list[int]], dict[int, Any], int]:
        """Tokens and last output of each, and how many outputs there were."""
        tokens: dict[int, list[int]] = defaultdict(list)
        last: dict[int, Any] = {}
        count = 0
        for request in requests:
            self.submit(request)
        while len(last) < len(requests):
            frame = next(self.frames)
            if isinstance(frame, StatisticsFrame):
                continue  # these come when their time has come
            for output in frame.outputs:
                count += 1
                tokens[output.request_id] += output.tokens
                if output.error is not None or output.finish_reason is not FinishReason.NOT_FINISHED:
                    last[output.request_id] = output
        return tokens, last, count


@contextmanager
def engine_process(directory: Path, kind: str = "mock") -> Iterator[tuple[subprocess.Popen[str], Driver]]:
    """The process itself, as the bridge starts it."""

    def command(fd: str) -> list[str]:
        return [
            *(sys.executable, "-m", "runner.engines.process", "--kind", kind),
            *("--engine-dir", str(directory), "--socket-fd", fd),
        ]

    with driven(command, cwd=PROJECT_ROOT) as driven_process:
        yield driven_process


@contextmanager
def driven(
    command: Callable[[str], list[str]],
    cwd: Path,
    stderr: int | IO[str] = subprocess.PIPE,
    **environment: str,
) -> Iterator[tuple[subprocess.Popen[str], Driver]]:
    """A program that speaks frames on the descriptor whose number `command` is given."""
    ours, theirs = socket.socketpair()
    with ours:
        process = subprocess.Popen(
            command(str(theirs.fileno())),
            pass_fds=[theirs.fileno()],
            cwd=cwd,
            env=os.environ | {"PYTHONPATH": str(PROJECT_ROOT)} | environment,
            stderr=stderr,
            text=True,
        )
        theirs.close()
        try:
            yield process, Driver(ours)
        finally:
            process.kill()
            process.communicate()
