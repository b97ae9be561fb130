"""The first process of a runner: it keeps Triton and an HTTP server running, and ends them in order.

                        preparation  fetches the engine, writes the model repository, and ends
    supervisor  ------  tritonserver and, below it, the engine
                        what answers Triton's own clients (runner/front/triton), if settings want it
                        the front (runner/front), or Cog's server with its worker (runner/cog/server.py)

All of them start immediately or as soon as they can. What dies is started again, after a growing pause: a new
front finds the engine loaded, a new Triton is found by the front. An HTTP server that makes no progress
(liveness.py) is killed, and counts as dead. A runner that has been READY once is never given up: nobody can
end it with what kills its processes. SIGTERM drains the front first.

The front (or Cog's worker) connects to a socket in the run directory, and learns there where the engine is;
see control.py.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from runner.lifecycle.control import (
    Connection,
    Drain,
    Drained,
    EngineAddress,
    Prepared,
    Ready,
    Refused,
    SettingsRead,
    SetupFailed,
    Shutdown,
)
from runner.lifecycle.gate import Gate
from runner.lifecycle.log_filter import LogForwarder
from runner.lifecycle.processes import Processes
from runner.lifecycle.restarts import Restarts
from runner.lifecycle.server import Command
from runner.triton.server import TritonSockets
from shared.errors import (
    CogTritonError,
    GenericError,
    ServerDiedTooOften,
    SetupTimedOut,
    TritonFailedToStart,
    WorkerDied,
    from_text,
)
from shared.signals import heeded, take_ends

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    import structlog

    from runner.lifecycle.processes import Process
    from runner.lifecycle.server import Server

_DYING_SECONDS = 1
_START_PAUSE_SECONDS = 1
_PREPARATION_GRACE_SECONDS = 5  # to remove what it has fetched; there is no server then, or it is idle
_SERVER_GRACE_SECONDS = 10  # how long it may take to end once nothing runs
_TRITON_GRACE_SECONDS = 6
_LAST_SECONDS = 4  # to kill what is left, and for this process and its container to end
SECONDS_TO_END = _SERVER_GRACE_SECONDS + _TRITON_GRACE_SECONDS + _LAST_SECONDS
"""How long the end of a runner may take once predictions have ended, or DRAIN_SECONDS have passed."""
_MAX_DEATHS = 5


class Supervisor:
    """One runner, from its start to its end."""

    def __init__(
        self,
        directory: Path,
        server: Server | None,
        *,
        end_on_failure: bool = False,
        on_ready: Callable[[float], object] = lambda _seconds: None,
    ) -> None:
        """`server` speaks HTTP; without one, call `serve_caller`.

        `end_on_failure`: end when the set-up fails, instead of reporting it at /health-check. `on_ready` is
        called once, with the seconds since this call.
        """
        self._directory = directory
        self._server = server
        self._end_on_failure = end_on_failure
        self._on_ready = on_ready
        self._started = time.monotonic()
        self._processes = Processes()
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._at_once = asyncio.Event()  # a second signal, or nobody is left to wait for
        self._connection: Connection | None = None  # with the front, or whatever takes its place
        self._connected = asyncio.Event()
        self._gone = asyncio.Event()  # it was connected, and no longer is
        self._drained = asyncio.Event()
        self._ready = asyncio.Event()
        self._address: EngineAddress | None = None
        self._failure: SetupFailed | None = None
        self._told: str | None = None  # the failure, once it is in the log
        self._refusal: CogTritonError | None = None  # why the HTTP server that connected last cannot serve
        self._preparation: Process | None = None
        self._triton: Process | None = None
        self._gate: Process | None = None
        self._http: Process | None = None
        self._drain_seconds = 0.0
        self._setup_seconds = 0.0
        self._setup_ends = 0.0  # by the event loop's clock

    async def run(self, caller: socket.socket | None = None) -> None:
        """Serve until a signal, or until the end of `caller`.

        Raises WorkerDied, SetupTimedOut, ServerDiedTooOften and what makes the HTTP server refuse to serve
        when it cannot, and with `end_on_failure` whatever the set-up raises.

        `caller` is the other end of a connection (control.py) with the process that serves, if this one does
        not start it: when it ends, so does the supervisor.
        """
        loop = asyncio.get_running_loop()
        for number in heeded():
            loop.add_signal_handler(number, self._on_signal)
        take_ends()
        tasks = [self._start(self._keep_engine())]
        listener = await asyncio.start_unix_server(self._converse, self.control_path)
        if self._server is not None:
            tasks.append(self._start(self._keep_server(self._server)))
        if caller is not None:
            reader, writer = await asyncio.open_connection(sock=caller)
            tasks.append(self._start(self._serve_caller(reader, writer)))
        try:
            await self._over
            await self._drain()
        finally:
            for task in tasks:
                task.cancel()
            listener.close()
            if self._server is not None:
                self._server.close()
            # In this order: Triton waits for its clients.
            for process, grace in (
                (self._preparation, _PREPARATION_GRACE_SECONDS),
                (self._http, _SERVER_GRACE_SECONDS),
                (self._triton, _TRITON_GRACE_SECONDS),
            ):
                if process is not None:
                    await process.end(0 if self._at_once.is_set() else grace)
            await self._processes.end_all()

    def has_told(self, error: CogTritonError) -> bool:
        """Whether it is in the log already: the preparation and the HTTP server read the same settings."""
        return str(error) == self._told

    @property
    def control_path(self) -> str:
        """Where the front connects."""
        return str(self._directory / "control")

    def _start(self, coroutine: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Run a part of the supervisor until it ends; a coded error that ends it ends the runner."""

        def ended(task: asyncio.Task[None]) -> None:
            if task.cancelled() or (error := task.exception()) is None or self._over.done():
                return
            if not isinstance(error, CogTritonError):
                _logger().error("the supervisor failed", exc_info=error)
                error = GenericError()
            self._over.set_exception(error)

        task = asyncio.create_task(coroutine)
        task.add_done_callback(ended)
        return task

    async def _process(self, command: Command, stderr: int | None = None) -> Process:
        """Start a process. Raises OSError, unless the runner has served: then it tries until that works."""
        while True:
            try:
                return self._processes.start(
                    command.arguments,
                    command.environment,
                    directory=command.directory,
                    stderr=stderr,
                    pass_fds=command.pass_fds,
                )
            except OSError as problem:  # no memory for it, or too many processes
                if not self._ready.is_set():
                    raise
                _logger().error("a process cannot be started; trying again", error=problem.strerror)
                await asyncio.sleep(_START_PAUSE_SECONDS)

    def _on_signal(self) -> None:
        if self._over.done():
            self._at_once.set()
        self._end()

    def _end(self) -> None:
        if not self._over.done():
            self._over.set_result(None)

    # --- the engine

    async def _keep_engine(self) -> None:
        """Prepare, start Triton, and start it again whenever it ends. Raises SetupTimedOut."""
        try:
            prepared = await self._prepared()
            self._address = prepared.address
            self._tell(prepared.address)
            await self._keep_triton(prepared)
        except SetupTimedOut:
            raise
        except CogTritonError as failed:
            self._fail(SetupFailed(str(failed)))

    async def _prepared(self) -> Prepared:
        near, far = socket.socketpair()
        command = [sys.executable, "-m", "cli.preparation"]
        command += ["--directory", str(self._directory), "--control-fd", str(far.fileno())]
        with far:
            process = self._processes.start(command, os.environ, pass_fds=[far.fileno()])
        self._preparation = process
        connection = Connection(*await asyncio.open_connection(sock=near))
        try:
            async with asyncio.timeout(None) as limit:
                async for message in connection:
                    match message:
                        case SettingsRead():
                            self._setup_ends = asyncio.get_running_loop().time() + message.setup_seconds
                            limit.reschedule(self._setup_ends)
                            self._setup_seconds = message.setup_seconds
                            self._drain_seconds = message.drain_seconds
                            self._engine_seconds = message.engine_start_seconds
                        case Prepared():
                            process.signal(signal.SIGKILL)  # it has done its work
                            return message
                        case SetupFailed(text):
                            raise _coded(text)
        except TimeoutError:
            raise SetupTimedOut(seconds=self._setup_seconds) from None
        finally:
            connection.close()
            await process.end(_PREPARATION_GRACE_SECONDS)
        raise TritonFailedToStart(reason=f"its preparation ended with {process.status}")

    async def _keep_triton(self, prepared: Prepared) -> None:
        restarts = Restarts()
        starting = self._start(self._expect_ready(self._engine_seconds))
        gate = self._start(self._keep_gate(prepared.gate))
        sockets = TritonSockets(self._directory)
        try:
            while not self._failed():
                sockets.remove()
                command = Command(prepared.command, prepared.environment)
                triton = self._triton = await self._process(command, stderr=subprocess.PIPE)
                assert triton.stderr is not None
                log = LogForwarder()
                forwarding = asyncio.create_task(log.forward(triton.stderr))
                await triton.ended.wait()
                self._processes.kill_adopted()
                await asyncio.wait({forwarding}, timeout=_DYING_SECONDS)
                forwarding.cancel()
                if self._failed():
                    return
                if not self._ready.is_set():
                    raise log.last_error or TritonFailedToStart(reason=f"it ended with {triton.status}")
                pause = restarts.pause()
                _logger().error("Triton ended; restarting it", status=triton.status, in_seconds=pause)
                await asyncio.sleep(pause)
        finally:
            starting.cancel()
            gate.cancel()
            if self._gate is not None:
                self._gate.signal(signal.SIGTERM)

    async def _keep_gate(self, command: list[str]) -> None:
        """Start what answers Triton's own clients, if anything does; start it again when it ends or hangs."""
        restarts, gate = Restarts(), Gate(command)
        while command:
            process = self._gate = await self._process(gate.command())
            how = await gate.wait_until_useless(process)
            process.signal(signal.SIGKILL)
            if not self._ready.is_set():
                error = TritonFailedToStart(reason=f"what answers at its addresses {how}")
                self._fail(SetupFailed(str(error)))
                return
            pause = restarts.pause()
            _logger().error(f"what answers Triton's clients {how}; restarting it", in_seconds=pause)
            await asyncio.sleep(pause)

    async def _expect_ready(self, seconds: float) -> None:
        """Fail unless the engine is ready in time. Raises SetupTimedOut when the whole set-up was not."""
        try:
            async with asyncio.timeout_at(self._setup_ends) as setup, asyncio.timeout(seconds):
                await self._ready.wait()
        except TimeoutError:
            if setup.expired():
                raise SetupTimedOut(seconds=self._setup_seconds) from None
            error = TritonFailedToStart(reason=f"it was not ready after {seconds:g} s (ENGINE_START_TIMEOUT)")
            self._fail(SetupFailed(str(error)))

    def _failed(self) -> bool:
        return self._failure is not None

    def _fail(self, failure: SetupFailed) -> None:
        """The set-up has failed for good: report it, and keep reporting it."""
        if self._failure is not None:
            return
        self._failure = failure
        self._tell(failure)
        if self._triton is not None:
            self._triton.signal(signal.SIGTERM)
        if not self._end_on_failure:
            if failure.error != str(self._refusal):  # what ends the runner is said at its end
                _logger().error(failure.error)
                self._told = failure.error
        elif not self._over.done():
            self._over.set_exception(_coded(failure.error))

    # --- the HTTP server

    async def _keep_server(self, server: Server) -> None:
        """Start the HTTP server, and start it again whenever it ends.

        Before the runner was ready once, raises WorkerDied, ServerDiedTooOften, and what makes the server
        refuse to serve. Later that may be a file that is being written.
        """
        restarts = Restarts()
        while True:
            self._gone.clear()
            self._connected.clear()
            command = server.command(self.control_path, restarts.total)
            self._http = await self._process(command)
            reason = await self._until_useless(server, self._http)
            self._http.signal(signal.SIGKILL)
            await self._http.ended.wait()
            self._processes.kill_adopted()
            if self._over.done():
                return
            pause = restarts.pause()
            if not self._ready.is_set():
                if not self._connected.is_set():
                    raise WorkerDied
                if self._refusal is not None:
                    raise self._refusal
                if restarts.recent > _MAX_DEATHS:
                    raise ServerDiedTooOften(times=restarts.recent)
            if self._refusal is not None:
                reason = "cannot serve"
            _logger().error(
                f"the HTTP server {reason}; restarting it",
                in_seconds=pause,
                **({"error": str(self._refusal)} if self._refusal else {}),
            )
            await asyncio.sleep(pause)

    async def _until_useless(self, server: Server, process: Process) -> str:
        """Wait until an HTTP server ends, or becomes useless; return how, in words."""
        broken = asyncio.create_task(server.wait_until_broken(process.pid, self._connected))
        ended = asyncio.create_task(process.ended.wait())
        lost = asyncio.create_task(self._gone.wait())
        try:
            await asyncio.wait({broken, ended, lost}, return_when=asyncio.FIRST_COMPLETED)
            if broken.done():
                return broken.result()
            # A server and its connection do not end in the same moment; what it has said must be read.
            await asyncio.wait({ended, lost}, timeout=_DYING_SECONDS)
            return f"ended with {process.status}" if ended.done() else "has lost its worker"
        finally:
            for task in (broken, ended, lost):
                task.cancel()

    async def _serve_caller(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._converse(reader, writer)
        self._at_once.set()
        self._end()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = self._connection = Connection(reader, writer)
        self._refusal = None
        self._connected.set()
        self._tell(self._failure or self._address)
        async for message in connection:
            match message:
                case Ready() if not self._ready.is_set():
                    self._ready.set()
                    self._on_ready(time.monotonic() - self._started)
                case SetupFailed() if not self._ready.is_set():
                    self._fail(message)
                case SetupFailed(text) | Refused(text):
                    self._refusal = _coded(text)
                    break
                case Drained():
                    self._drained.set()
                case Shutdown():
                    self._end()
        connection.close()
        if self._connection is connection:
            self._connection = None
            self._gone.set()

    def _tell(self, message: EngineAddress | SetupFailed | Drain | None) -> None:
        if message is not None and self._connection is not None:
            self._connection.send(message)

    async def _drain(self) -> None:
        """Let the front finish what is running. Another signal, or its death, ends that."""
        if self._ready.is_set() and self._failure is None:
            self._tell(Drain(self._drain_seconds))
            events = (self._drained, self._gone, self._at_once)
            waits = {asyncio.create_task(event.wait()) for event in events}
            seconds = self._drain_seconds + _SERVER_GRACE_SECONDS
            happened, _ = await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            if not happened and self._http is not None:
                self._http.signal(signal.SIGKILL)  # it has had its time


def _coded(text: str) -> CogTritonError:
    return from_text(text) or TritonFailedToStart(reason=text)


def _logger() -> structlog.stdlib.BoundLogger:
    """Imported when there is something to log: that takes as long as importing everything else."""
    from shared.logs import configure_logging, get_logger

    configure_logging()
    logger: structlog.stdlib.BoundLogger = get_logger("runner.lifecycle")
    return logger
