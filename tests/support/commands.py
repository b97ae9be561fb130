"""The command line in processes that have imported it already: a command takes milliseconds, and fails alone."""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import resource
import signal
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, NamedTuple

import tenacity

import cli
from shared.http import limits
from tests.support.forks import FORKS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_LOCK = threading.Lock()  # starting a process collects those that have ended
_MAX_BYTES = 2 << 30


class Done(NamedTuple):
    """A command that has ended; its status is None if it was ended because it took too long."""

    status: int | None
    text: str


def run(
    arguments: Sequence[str], folder: Path, output: Path, environment: Mapping[str, str], seconds: float
) -> Done:
    """Run `cog-triton ARGUMENTS` in `folder`; what it prints goes to the file `output`."""
    process = FORKS.Process(target=_main, args=(arguments, folder, output, environment))
    with _LOCK:
        process.start()
    ended = wait([process.sentinel], seconds)
    assert process.pid is not None
    with suppress(ProcessLookupError):  # and what it has started
        os.killpg(process.pid, signal.SIGKILL)
    wait([process.sentinel])
    with _LOCK:
        process.join()
    return Done(process.exitcode if ended else None, output.read_text(errors="replace"))


def _main(arguments: Sequence[str], folder: Path, output: Path, environment: Mapping[str, str]) -> None:
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, file in enumerate((os.devnull, output, output)):
        os.dup2(os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND), number)
    resource.setrlimit(resource.RLIMIT_DATA, (_MAX_BYTES, _MAX_BYTES))
    limits.WAIT = tenacity.wait_exponential_jitter(max=0)  # between two attempts
    sys.argv = ["cog-triton", *arguments]
    importlib.import_module("cli.main").main()


# What the processes begin with.
for _found in pkgutil.iter_modules(cli.__path__, "cli."):
    if _found.name != "cli.__main__":
        importlib.import_module(_found.name)
for _name in (
    "builder.pipeline",
    "cli.acceptance.command",
    "cli.perf.command",
    "cli.perf.options",
    "cli.plan.command",
    # Commands import these only when they need them: a usage error, a load.
    "typer.rich_utils",
    "uvloop",
):
    importlib.import_module(_name)
gc.freeze()  # the processes share it
