"""The engine process: hosts one engine, and speaks frames with the engine bridge.

    python -m runner.engines.process --kind mock --engine-dir DIR --socket-fd 3

The main thread turns the engine's steps into STEP frames; a second thread reads what the bridge sends.
"""

from __future__ import annotations

import argparse
import gc
import os
import socket
import sys
import threading
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from runner.protocol.engine import HasStatistics, Output
from runner.protocol.frames import (
    CancelFrame,
    Frame,
    Interface,
    ReadyFrame,
    RequestFrame,
    ShutdownFrame,
    StartFailedFrame,
    StatisticsFrame,
    encode,
    encode_step,
    receive,
)
from runner.protocol.tokens import decode_request
from shared.errors import UNEXPECTED, CogTritonError, EngineInternalError, EngineStartFailed

from .catalogue import find_engine
from .checks import check_request
from .gpus import show_gpus
from .hosts.settings import ENGINE_DIR, HostsSettings
from .replies import GatheredTokens, Reply, TextInterface, is_last

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from runner.protocol.engine import Engine, Request
    from runner.protocol.outputs import TensorsOutput, TextOutput

    from .catalogue import EngineKind
    from .tensorrt_llm.ranks import Rank

_STATISTICS_SECONDS = 1
_SECONDS_BETWEEN_TRACEBACKS = 1.0
_SECONDS_TO_END = 0.8  # a process that nobody listens to must end within a second


def load_engine(kind: EngineKind, engine_dir: Path) -> Engine:
    """Load the engine. Raises its own coded errors, and EngineStartFailed for anything else."""
    module, _, name = kind.implementation.partition(":")
    try:
        engine: Engine = getattr(import_module(module), name)(engine_dir)
    except CogTritonError:
        raise
    except Exception as error:
        traceback.print_exc()
        raise EngineStartFailed(reason=UNEXPECTED) from error
    return engine


class EngineProcess:
    """One engine on one socket."""

    def __init__(self, kind: EngineKind, engine: Engine, engine_dir: Path, connection: socket.socket) -> None:
        self._engine = engine
        self._declaration = kind.declaration(engine)
        self._text = TextInterface(engine_dir)
        self._connection = connection
        self._send_lock = threading.Lock()
        self._replies: dict[int, Reply] = {}  # of the requests whose outputs are not sent unchanged
        self._ending = threading.Event()
        self._tracebacks = _Tracebacks()

    def serve(self) -> None:
        """Serve until the bridge closes the socket or says so. Raises what the engine's steps raise."""
        # What exists now stays. Each full collection of it would stop all streams, for 0.3 s with vLLM.
        gc.collect()
        gc.freeze()
        self._send(encode(ReadyFrame(self._declaration)))
        threading.Thread(target=self._read, name="bridge", daemon=True).start()
        if isinstance(self._engine, HasStatistics):
            tell = threading.Thread(target=self._tell, args=(self._engine,), name="statistics", daemon=True)
            tell.start()
        for step in self._engine.steps():
            outputs = self._answers(step)
            if outputs:
                self._send(encode_step(outputs))
        if not self._ending.is_set():
            raise RuntimeError("the engine ended its steps by itself")

    def _read(self) -> None:
        """Take frames until the end. When it returns, the process is of no more use: nobody else reads."""
        try:
            for frame in receive(self._connection):
                if isinstance(frame, ShutdownFrame):
                    break
                self._take(frame)
        except (OSError, ValueError):
            traceback.print_exc()
        self._ending.set()
        # An engine that hangs must not keep the process alive.
        last_resort = threading.Timer(_SECONDS_TO_END, os._exit, (1,))
        last_resort.daemon = True
        last_resort.start()
        self._engine.shutdown()

    def _tell(self, engine: HasStatistics) -> None:
        told = None
        while not self._ending.wait(_STATISTICS_SECONDS):
            statistics = engine.statistics()
            if statistics != told:
                self._send(encode(StatisticsFrame(statistics)))
                told = statistics

    def _take(self, frame: Frame) -> None:
        match frame:
            case RequestFrame():
                try:
                    self._submit(frame)
                except Exception as error:
                    self._replies.pop(frame.request_id, None)
                    self._send(
                        encode_step(
                            [Output(frame.request_id, error=self._tracebacks.coded(error, frame.triton_id))]
                        )
                    )
            case CancelFrame(request_id):
                self._engine.cancel(request_id)
            case _:
                raise ValueError(f"{type(frame).__name__} belongs to the other direction")

    def _submit(self, frame: RequestFrame) -> None:
        request: Request
        reply: Reply | None
        if frame.interface is Interface.TEXT:
            request, reply = self._text.decode(frame)
        elif frame.interface is Interface.VLLM:
            from .backend_replies import decode_for_backend

            request, reply = decode_for_backend(frame, lambda: self._text.tokenizer)
        else:
            request = decode_request(frame)
            reply = None if request.streaming else GatheredTokens()
        check_request(self._declaration, request)
        if reply is not None:
            self._replies[request.request_id] = reply
        self._engine.submit(request)

    def _answers(self, step: Iterable[Output]) -> Sequence[Output | TextOutput | TensorsOutput]:
        """What a step can send: all outputs of most requests, and what the replies of the others yield."""
        if not self._replies:
            return list(step)
        answers: list[Output | TextOutput | TensorsOutput] = []
        for output in step:
            reply = self._replies.get(output.request_id)
            if reply is None:
                answers.append(output)
                continue
            answered = reply.ended
            if (answer := reply.take(output)) is not None:
                answers.append(answer)
            if is_last(output):
                del self._replies[output.request_id]
            elif reply.ended and not answered:
                self._engine.cancel(output.request_id)
        return answers

    def _send(self, data: bytes) -> None:
        with self._send_lock:
            self._connection.sendall(data)


class _Tracebacks:
    """What must not be sent to a request's sender goes to the log: one a second, however many fail."""

    def __init__(self) -> None:
        self._at = -_SECONDS_BETWEEN_TRACEBACKS
        self._left_out = 0

    def coded(self, error: Exception, triton_id: str) -> CogTritonError:
        """The error that the sender of the request may see."""
        if isinstance(error, CogTritonError):
            return error
        now = time.monotonic()
        if now - self._at < _SECONDS_BETWEEN_TRACEBACKS:
            self._left_out += 1
        else:
            before = f"{self._left_out} tracebacks were left out\n" if self._left_out else ""
            trace = "".join(traceback.format_exception(error))
            sys.stderr.write(f"{before}request {triton_id!r}:\n{trace}")
            self._at, self._left_out = now, 0
        return EngineInternalError(reason=UNEXPECTED)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the engine process; the exit status is 0 when it was told to end."""
    parser = argparse.ArgumentParser(prog="runner.engines.process")
    parser.add_argument("--kind", required=True)
    parser.add_argument("--engine-dir", type=Path, required=True)
    parser.add_argument("--socket-fd", type=int, help="the bridge's socket")
    parser.add_argument("--rank-socket", help="in one of several ranks: the launcher's socket")
    parser.add_argument("--rank-address", help="and its address for ranks on other hosts")
    options = parser.parse_args(arguments)
    show_gpus(os.environ)
    if options.rank_socket is not None:
        return _run_rank(
            find_engine(options.kind),
            Path(os.environ.get(ENGINE_DIR) or options.engine_dir),
            options.rank_socket,
            options.rank_address,
        )
    connection = socket.socket(fileno=options.socket_fd)
    try:
        kind = find_engine(options.kind)
        ranks = kind.ranks(options.engine_dir)
        if ranks > 1:
            from .tensorrt_llm.launcher import launch

            hosts = HostsSettings.from_environment(os.environ)
            return launch(ranks, options.kind, options.engine_dir, connection, hosts)
    except CogTritonError as error:
        connection.sendall(encode(StartFailedFrame(str(error))))
        return 1
    return _run(kind, options.engine_dir, connection)


def _run_rank(kind: EngineKind, engine_dir: Path, launcher: str, address: str | None) -> int:
    from .tensorrt_llm.ranks import Rank

    rank = Rank(launcher, address)
    bridge = rank.bridge
    status = _follow(kind, engine_dir, rank) if bridge is None else _run(kind, engine_dir, bridge)
    if status == 0:
        rank.announce_end()
    return status


def _follow(kind: EngineKind, engine_dir: Path, rank: Rank) -> int:
    """Be one of the ranks that do what the first one says."""
    try:
        engine = load_engine(kind, engine_dir)
    except CogTritonError as error:
        rank.fail(str(error))
        return 1
    engine.follow()  # type: ignore[attr-defined] # only engines that have ranks come here
    return 0


def _run(kind: EngineKind, engine_dir: Path, connection: socket.socket) -> int:
    with connection:
        connection.set_inheritable(False)  # a child that outlives us must not hold the socket open
        try:
            engine = load_engine(kind, engine_dir)
        except CogTritonError as error:
            connection.sendall(encode(StartFailedFrame(str(error))))
            return 1
        try:
            EngineProcess(kind, engine, engine_dir, connection).serve()
        except (BrokenPipeError, ConnectionResetError):
            return 0  # the bridge is gone
        except CogTritonError as error:
            connection.sendall(encode(StartFailedFrame(str(error))))
            return 1
        except Exception:
            traceback.print_exc()
            return 1
        return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # without waiting for threads that an engine left behind
