"""The engine process: hosts one engine, and speaks frames with the engine bridge.

    python -m runner.engines.process --kind mock --engine-dir DIR --socket-fd 3

The main thread turns the engine's steps into STEP frames; a second thread reads what the bridge sends.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import threading
import traceback
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from runner.triton.contract import decode_request
from shared.errors import CogTritonError, EngineInternalError, EngineStartFailed

from .base import FinishReason, Output
from .frames import (
    CancelFrame,
    Frame,
    ReadyFrame,
    RequestFrame,
    ShutdownFrame,
    StartFailedFrame,
    encode,
    encode_step,
    receive,
)
from .honours import check_honoured

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .base import Engine, Request

# Kind -> module and class; imported when it is asked for, since each engine has an environment of its own.
ENGINES = {
    "mock": ("runner.engines.mock", "MockEngine"),
    "ctranslate2": ("runner.engines.ctranslate2", "CTranslate2Engine"),
}

_SECONDS_TO_END = 0.8  # a process that nobody listens to must be gone within a second


def load_engine(kind: str, engine_dir: Path) -> Engine:
    """Load the engine. Raises its own coded errors, and E2407 for everything else."""
    if kind not in ENGINES:
        raise EngineStartFailed(reason=f'there is no engine "{kind}", only {", ".join(ENGINES)}')
    module, name = ENGINES[kind]
    try:
        engine: Engine = getattr(import_module(module), name)(engine_dir)
    except CogTritonError:
        raise
    except Exception as error:
        traceback.print_exc()
        raise EngineStartFailed(reason=f"{type(error).__name__} while it was loaded") from error
    return engine


class EngineProcess:
    """One engine on one socket."""

    def __init__(self, kind: str, engine: Engine, connection: socket.socket) -> None:
        self._kind = kind
        self._engine = engine
        self._connection = connection
        self._send_lock = threading.Lock()
        self._gathered: dict[int, list[int]] = {}  # tokens of the requests that do not stream
        self._ending = threading.Event()

    def serve(self) -> None:
        """Serve until the bridge closes the socket or says so. Raises what the engine's steps raise."""
        self._send(encode(ReadyFrame()))
        threading.Thread(target=self._read, name="bridge", daemon=True).start()
        for step in self._engine.steps():
            outputs = self._gather(step)
            if outputs:
                self._send(encode_step(outputs))
        if not self._ending.is_set():
            raise RuntimeError("the engine ended its steps by itself")

    def _read(self) -> None:
        """Take frames until the end. Never returns with the process still useful: nobody else reads."""
        try:
            for frame in receive(self._connection):
                if isinstance(frame, ShutdownFrame):
                    break
                self._take(frame)
        except (OSError, ValueError):
            traceback.print_exc()
        self._ending.set()
        # An engine that hangs must not keep the process.
        last_resort = threading.Timer(_SECONDS_TO_END, os._exit, (1,))
        last_resort.daemon = True
        last_resort.start()
        self._engine.shutdown()

    def _take(self, frame: Frame) -> None:
        match frame:
            case RequestFrame():
                try:
                    self._submit(decode_request(frame))
                except Exception as error:
                    self._gathered.pop(frame.request_id, None)
                    self._send(encode_step([Output(frame.request_id, error=_coded(error, frame.triton_id))]))
            case CancelFrame(request_id):
                self._engine.cancel(request_id)
            case _:
                raise ValueError(f"{type(frame).__name__} goes the other way")

    def _submit(self, request: Request) -> None:
        check_honoured(self._kind, self._engine.honours, request.sampling)
        if not request.streaming:
            self._gathered[request.request_id] = []
        self._engine.submit(request)

    def _gather(self, step: Iterable[Output]) -> Sequence[Output]:
        """The outputs that can go: all those of streaming requests, and the last ones of the others."""
        if not self._gathered:
            return list(step)
        outputs = []
        for output in step:
            tokens = self._gathered.get(output.request_id)
            if tokens is None:
                outputs.append(output)
                continue
            tokens += output.tokens
            if output.error is not None or output.finish_reason is not FinishReason.NOT_FINISHED:
                del self._gathered[output.request_id]
                outputs.append(replace(output, tokens=tokens))
        return outputs

    def _send(self, data: bytes) -> None:
        with self._send_lock:
            self._connection.sendall(data)


def _coded(error: Exception, triton_id: str) -> CogTritonError:
    """The error that the sender of the request may see; what it may not see goes to the log."""
    if isinstance(error, CogTritonError):
        return error
    sys.stderr.write(f"request {triton_id!r}:\n{''.join(traceback.format_exception(error))}")
    return EngineInternalError(reason=f"{type(error).__name__} when it was submitted")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the engine process; the exit status is 0 when it was told to end."""
    parser = argparse.ArgumentParser(prog="runner.engines.process")
    parser.add_argument("--kind", required=True)
    parser.add_argument("--engine-dir", type=Path, required=True)
    parser.add_argument("--socket-fd", type=int, required=True)
    options = parser.parse_args(arguments)
    with socket.socket(fileno=options.socket_fd) as connection:
        connection.set_inheritable(False)  # a child that outlives us must not hold the socket open
        try:
            engine = load_engine(options.kind, options.engine_dir)
        except CogTritonError as error:
            connection.sendall(encode(StartFailedFrame(str(error))))
            return 1
        try:
            EngineProcess(options.kind, engine, connection).serve()
        except (BrokenPipeError, ConnectionResetError):
            return 0  # the bridge is gone
        except Exception:
            traceback.print_exc()
            return 1
        return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # without waiting for threads that an engine left behind
