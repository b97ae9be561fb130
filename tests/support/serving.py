"""`cog-triton serve` in processes that have imported everything already: a start takes a tenth of a second.

All else is as ever: the command line, the supervisor, its processes and their sockets, Triton and the engine. Only a
Python of ours that would be started, and import for a second, is a fork of one that has.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import http.client
import importlib
import json
import os
import resource
import runpy
import signal
import ssl
import subprocess
import sys
import threading
import time
from contextlib import suppress
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, NamedTuple

import tenacity

from runner.lifecycle import processes
from shared.http import limits
from tests.support.forks import FORKS
from tests.support.processes import descendants, is_alive

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_LOCK = threading.Lock()  # starting a process collects those that have ended
_MAX_BYTES = 4 << 30
_FORKED = ("cli.preparation", "runner.front", "runner.lifecycle")
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
_SUBREAPER, _DROP = 36, 24  # of prctl
_TIMES = 2  # the second SIGTERM means: at once
_CAPABILITY_VERSION = 0x20080522
_READS_EVERYTHING = {1, 2}  # capabilities: root reads what its owner may not


class Served(NamedTuple):
    """How a server that has ended was."""

    status: int | None
    """None if it took too long."""
    text: str
    """What it printed."""
    answer: str | None
    """To a prediction; None if it was never ready."""
    left: int
    """Processes that it left behind."""


class Start(NamedTuple):
    """How `cog-triton` is started."""

    arguments: Sequence[str]
    """With none, what the images run is run."""
    folder: Path
    """Where it is given."""
    output: Path
    """The file that gets what it prints."""
    environment: Mapping[str, str]
    port: int
    """On which it serves."""


def serve(start: Start, seconds: float) -> Served:
    """Start it, wait for an answer for `seconds`, and end it by SIGTERM."""
    ours, theirs = FORKS.Pipe(duplex=False)
    process = FORKS.Process(target=_watch, args=(theirs, start, seconds))
    with _LOCK:
        process.start()
    theirs.close()
    status, answer, left = None, None, 0
    if wait([ours, process.sentinel], seconds + 30):
        with suppress(EOFError):
            status, answer, left = ours.recv()
    with suppress(ProcessLookupError):
        os.killpg(process.pid or 0, signal.SIGKILL)
    wait([process.sentinel])
    with _LOCK:
        process.join()
    return Served(status, start.output.read_text(errors="replace"), answer, left)


def _watch(told: Any, start: Start, seconds: float) -> None:
    """Start it, and see how it ends: what it leaves behind becomes a child of this process."""
    os.setsid()
    ctypes.CDLL(None).prctl(_SUBREAPER, 1)
    end = time.monotonic() + seconds
    if (server := os.fork()) == 0:
        told.close()
        _leave(lambda: _main(start))
    answer, status, asked = None, None, 0
    tls = bool(start.environment.get("TLS_CERTIFICATE"))
    while time.monotonic() < end:
        found, code = os.waitpid(server, os.WNOHANG)
        if found:
            status = os.waitstatus_to_exitcode(code)
            break
        if answer is None:
            answer = _answer(start.port, tls=tls)
        elif asked < _TIMES:
            os.kill(server, signal.SIGTERM)
            asked += 1
            time.sleep(0.1)
        time.sleep(0.03)
    left = [child for child in descendants(os.getpid()) if is_alive(child)]
    while alive := [child for child in descendants(os.getpid()) if is_alive(child)]:
        for child in alive:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    told.send((status, answer, 0 if status is None else len(left)))


def _answer(port: int, *, tls: bool) -> str | None:
    """To a prediction; None while the server is not ready."""
    try:
        status, text = _ask(port, tls, "GET", "/health-check", None)
        if status != 200 or json.loads(text)["status"] != "READY":
            return None
        body = json.dumps({"input": {"prompt": "x", "max_tokens": 2}})
        return _ask(port, tls, "POST", "/predictions", body)[1]
    except (OSError, http.client.HTTPException, ValueError):
        return None


def _ask(port: int, tls: bool, method: str, path: str, body: str | None) -> tuple[int, str]:
    if tls:
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            "127.0.0.1",
            port,
            timeout=10,
            context=ssl._create_unverified_context(),
        )
    else:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def _main(start: Start) -> None:
    os.chdir(start.folder)
    _surround(start.environment)
    for number, file in enumerate((os.devnull, start.output, start.output)):
        os.dup2(os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND), number)
    _give_up_reading_everything()
    resource.setrlimit(resource.RLIMIT_DATA, (_MAX_BYTES, _MAX_BYTES))
    limits.WAIT = tenacity.wait_exponential_jitter(max=0)  # between two attempts
    processes.subprocess = _Subprocess  # type: ignore[attr-defined, assignment]  # a stand-in
    os.execve = _become  # type: ignore[assignment]  # a stand-in
    if not start.arguments:
        _run("runner.lifecycle", ["--host", "127.0.0.1", "--end-on-failure"])
    sys.argv = ["cog-triton", *start.arguments]
    importlib.import_module("cli.main").main()


def _become(_file: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
    _, _, module, *arguments = command
    _surround(environment)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _run(module, arguments)


def _surround(environment: Mapping[str, str]) -> None:
    variables = dict(environment)
    os.environ.clear()
    os.environ.update(variables)


def _run(module: str, arguments: Sequence[str]) -> None:
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _leave(run: Any) -> None:
    """Run it in a process that has just been forked, and end that."""
    status = 1
    try:
        run()
        status = 0
    except SystemExit as ends:
        status = ends.code if isinstance(ends.code, int) else int(ends.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(BaseException):
            threading._shutdown()  # type: ignore[attr-defined]  # as an interpreter that ends
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


class _Forked:
    """As much of Popen as a supervisor uses."""

    stderr = None
    returncode = 0

    def __init__(self, command: Sequence[str], options: dict[str, Any]) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        self.pid = os.fork()
        if self.pid == 0:
            _leave(lambda: self._be(command, options))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)

    def _be(self, command: Sequence[str], options: dict[str, Any]) -> None:
        signal.set_wakeup_fd(-1)
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        asyncio.set_event_loop(None)
        os.setpgid(0, 0)
        options["preexec_fn"]()
        kept = sorted({0, 1, 2, *options["pass_fds"]})
        for low, high in zip(kept, [*kept[1:], 1 << 16], strict=True):
            os.closerange(low + 1, high)
        _surround(options["env"])
        if options["cwd"] is not None:
            os.chdir(options["cwd"])
        _, _, module, *arguments = command
        _run(module, arguments)


class _Subprocess:
    PIPE, DEVNULL = subprocess.PIPE, subprocess.DEVNULL

    @staticmethod
    def Popen(command: Sequence[str], **options: Any) -> object:  # noqa: N802 - its name
        if command[1] == "-m" and command[2] in _FORKED:
            return _Forked(command, options)
        return subprocess.Popen(command, **options)


def _give_up_reading_everything() -> None:
    """Of root, who reads files that nobody may read."""
    if os.getuid() != 0:
        return
    libc = ctypes.CDLL(None)
    for capability in _READS_EVERYTHING:  # what is started then must not get it back
        libc.prctl(_DROP, capability)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    data = (ctypes.c_uint32 * 6)()
    if libc.capget(header, data) == 0:
        for index in (0, 1, 2):  # effective, permitted, inheritable, of the first 32
            for capability in _READS_EVERYTHING:
                data[index] &= ~(1 << capability)
        libc.capset(header, data)


# What the processes begin with.
for _name in (
    "cli.main",
    "cli.preparation",
    "runner.lifecycle.__main__",
    "runner.front.__main__",
    "runner.cog.server",
    "uvicorn.protocols.http.httptools_impl",
    "uvicorn.lifespan.off",
    "shared.config",
    "cli.engines",
):
    importlib.import_module(_name)
    if _name in (*_FORKED, *(f"{one}.__main__" for one in _FORKED)):
        del sys.modules[_name]  # it is run as a program
gc.freeze()  # the processes share it
