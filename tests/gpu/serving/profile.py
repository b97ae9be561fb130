"""Where processes spend their time, as py-spy sees it: a program that is given, and in none of our environments."""

from __future__ import annotations

import re
import signal
import subprocess
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_SAMPLES_PER_SECOND = 200
_FUNCTIONS = 8  # that are told of each process
_LINE = re.compile(r":[0-9]+\)$")


@contextmanager
def profiled(
    py_spy: Path, processes: dict[str, int], directory: Path, tell: Callable[[str, dict[str, Any]], None]
) -> Iterator[None]:
    """Watch processes, by name, and tell each one's functions when what is done meanwhile has ended.

    Their stacks are then in `directory`, as NAME.stacks: a stack and how often it was seen on each line.
    """
    watching = {}
    for name, pid in processes.items():
        stacks = directory / f"{name.replace(' ', '-')}.stacks"
        command = [str(py_spy), "record", "--pid", str(pid), "--rate", str(_SAMPLES_PER_SECOND), "--threads"]
        # Without stopping the process for each look.
        command += ["--nonblocking", "--duration", "unlimited", "--format", "raw", "--output", str(stacks)]
        watching[name] = (
            stacks,
            subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL),
        )
    try:
        yield
    finally:
        for _, watcher in watching.values():
            watcher.send_signal(signal.SIGINT)  # it writes what it has seen then
        for _, watcher in watching.values():
            watcher.wait(60)
    for name, (stacks, _) in watching.items():
        if stacks.exists() and (told := busiest(stacks.read_text()))["samples"]:
            tell(name, told)


def busiest(stacks: str) -> dict[str, Any]:
    """How many stacks were seen, and which share of them ended in the functions that did so most often."""
    seen: Counter[str] = Counter()
    for line in stacks.splitlines():
        stack, _, count = line.rpartition(" ")
        seen[_LINE.sub(")", stack.rpartition(";")[2])] += int(count)
    whole = seen.total()
    shares = [[function, round(count / whole, 3)] for function, count in seen.most_common(_FUNCTIONS)]
    return {"samples": whole, "functions": shares}
