"""A host that serves part of an engine: it joins the first host, and runs what that one asks for.

    python -m cli.joining ADDRESS

It prepares as a runner does (the same settings, the same engine), makes a link to ADDRESS, and runs one of
two things: mpirun's daemon, which starts the ranks of a TensorRT-LLM engine, or a vLLM node. When the link
ends, for whatever reason, everything it started is killed, and it joins again.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from runner.engines.catalogue import ENGINES
from runner.engines.hosts.agent import DAEMONS
from runner.engines.hosts.link import Link, LinkLost, LinkRefused, connect
from runner.engines.hosts.settings import ENGINE_DIR, FAILURE, identity
from runner.engines.tensorrt_llm.settings import SERVER_ARGUMENTS
from runner.engines.vllm.compile_cache import COMPILE_CACHE
from runner.lifecycle.environment import engine_environment
from runner.lifecycle.machine import gpus_here
from runner.lifecycle.preparation import engine_kind, prepare_engine
from runner.lifecycle.processes import children
from runner.lifecycle.run_directory import run_directory
from runner.settings import Settings
from shared.core_dumps import no_core_dumps
from shared.errors import CogTritonError, HostNotJoined
from shared.home import SCRATCH
from shared.layout import PROJECT_ROOT, Layout
from shared.log_pipe import never_block
from shared.logs import configure_logging, get_logger
from shared.signals import heeded, in_words, take_ends

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.lifecycle.preparation import Find

_RETRY_SECONDS = 0.5
_SECONDS_TO_START = 2.0  # what ends with an error before that could not do its part
_PR_SET_CHILD_SUBREAPER = 36

log = get_logger()


class Part(NamedTuple):
    """The part of an engine that this host serves."""

    kind: str
    engine_dir: Path
    gpus: int
    environment: dict[str, str]

    def command(self, told: Sequence[str]) -> list[str]:
        """The command for what the first host asks for. Raises LookupError for anything else, with a reason
        for that host, and PartNotInstalled.
        """
        name, *arguments = told
        if self.kind == "tensorrt_llm" and name in DAEMONS:
            if (program := shutil.which(name, path=self.environment["PATH"])) is None:
                raise LookupError(f"there is no {name} there")
            return [program, *arguments]
        if self.kind == "vllm" and name == "vllm-node":
            python = str(Layout.current().engine_python(self.kind))
            return [python, "-m", "runner.engines.vllm.node", str(self.engine_dir), *arguments]
        raise LookupError(f"{name!r} is unknown there")


def part_of(address: str, settings: Settings, find: Find) -> Part:
    """Fetch the engine, and find out what this host has.

    Raises HostNotJoined for an engine without GPUs, and what the preparation of a runner raises.
    """
    engine = prepare_engine(settings, Layout.current().available_engines(), find, several_hosts=True)
    kind = engine_kind(engine.manifest)
    if ENGINES[kind].needs_cuda is None:
        reason = f"an engine of the kind {kind} needs no GPU, and the first host serves it alone"
        raise HostNotJoined(address=address, reason=reason)
    environment = engine_environment(os.environ, settings.engine_variables)
    environment |= {
        "PATH": f"{Path(Layout.current().engine_python(kind)).parent}:{os.environ.get('PATH', os.defpath)}",
        "PYTHONPATH": str(PROJECT_ROOT),
        "PYTHONSAFEPATH": "1",
        ENGINE_DIR: str(engine.path),
        COMPILE_CACHE: str(settings.compile_cache),
        SERVER_ARGUMENTS: json.dumps(settings.server_arguments(engine.config)),
    }
    return Part(kind, engine.path, gpus_here(), environment)


def join(address: str, part: Part, secret: bytes) -> None:
    """Serve the part until this process is ended.

    Raises HostNotJoined when the first host refuses it, and RunDirectoryUnusable.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)  # a daemon's parent ends at once
    told_waiting = False
    while True:
        try:
            link = connect(address, secret)
        except LinkRefused as refused:
            raise HostNotJoined(address=address, reason=refused) from None
        except OSError as problem:
            if not told_waiting:
                log.info(
                    "waiting for the first host", address=address, reason=problem.strerror or str(problem)
                )
                told_waiting = True
            time.sleep(_RETRY_SECONDS)
            continue
        told_waiting = False
        try:
            with run_directory() as directory:
                try:
                    serve(link, part, address, directory)
                finally:
                    link.close()
                    end_children()
        except LinkLost as lost:
            log.warning("the first host has left", address=address, reason=str(lost))
        time.sleep(_RETRY_SECONDS)


def serve(link: Link, part: Part, address: str, directory: Path) -> None:
    """Do what arrives over a link; what is run has its files in `directory`.

    Raises `LinkLost` at the end of the link, HostNotJoined when the first host refuses this one.
    """
    failure = directory / "failure"  # why what is run has ended, if it says so
    environment = part.environment | {FAILURE: str(failure), SCRATCH: str(directory)}
    if part.kind == "tensorrt_llm":
        environment["TMPDIR"] = str(directory)  # Open MPI's daemon leaves files there when it is killed
    mine = {"host": socket.gethostname(), "gpus": part.gpus, "identity": identity(part.kind, part.engine_dir)}
    link.send(mine)
    log.info("connected", address=address, gpus=part.gpus)
    while True:
        message = link.receive()
        if (refused := message.get("refused")) is not None:
            raise HostNotJoined(address=address, reason=refused)
        try:
            command = part.command(message["run"])
        except (LookupError, CogTritonError) as problem:
            link.send({"failed": str(problem)})
            continue
        try:
            failure.unlink(missing_ok=True)
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                cwd=PROJECT_ROOT,
                start_new_session=True,
            )
        except OSError as problem:
            link.send({"failed": f"{Path(command[0]).name} cannot be started there ({problem.strerror})"})
            continue
        threading.Thread(
            target=_watch, args=(process, command[0], failure, link), name="part", daemon=True
        ).start()


def _watch(process: subprocess.Popen[bytes], program: str, failure: Path, link: Link) -> None:
    if status := process.wait():
        how = f"{Path(program).name} ended with {in_words(status)}"
        why = failure.read_text() if failure.exists() else how
        with suppress(LinkLost):
            link.send({"failed": why})


def end_children() -> None:
    """Kill everything that was started here, and wait until nothing is left."""
    while left := children(os.getpid()):
        for child in left:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        time.sleep(0.02)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue


def main(find: Find) -> int:
    """Join until SIGTERM; exit status 1 when this host cannot."""
    parser = argparse.ArgumentParser(prog="cli.joining")
    parser.add_argument("address", metavar="ADDRESS", help="HOSTS_ADDRESS of the first host")
    options = parser.parse_args()
    no_core_dumps()
    with never_block(1, 2):
        return _main(options.address, find)


def _main(address: str, find: Find) -> int:
    configure_logging()
    for number in heeded():
        signal.signal(number, _end)
    take_ends()
    try:
        settings = Settings.from_environment(os.environ)
        secret = settings.secret_of_hosts()
        join(address, part_of(address, settings, find), secret)
    except CogTritonError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    finally:
        end_children()
    return 0


def _end(number: int, _frame: object) -> None:
    sys.exit(0 if number == signal.SIGTERM else 128 + number)
