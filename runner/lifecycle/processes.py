"""The processes below the supervisor: started, waited for, and ended with it, however it ends."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from runner.lifecycle.out_of_memory import killed_so_far
from shared.signals import in_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL_SECONDS = 0.02
_BADNESS = Path("/proc/self/oom_score_adj")
_MORE_BADNESS = 10  # thousandths of the memory that there is
_MAX_BADNESS = 1000
_LIBC = ctypes.CDLL(None)


class Process:
    """A child process. `Processes.start` makes them."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen = popen
        self.pid = popen.pid
        self.stderr = popen.stderr
        self._killed_before = killed_so_far()
        self.ended = asyncio.Event()
        self._cause = ""

    @property
    def status(self) -> str:
        """How it ended, in words."""
        return in_words(self._popen.returncode) + self._cause

    def signal(self, number: int) -> None:
        """Send a signal; nothing happens if it has ended."""
        if not self.ended.is_set():
            os.kill(self.pid, number)

    async def end(self, grace: float) -> None:
        """Send SIGTERM, and SIGKILL if it has not ended within `grace` seconds."""
        self.signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self.ended.wait(), grace)
        except TimeoutError:
            self.signal(signal.SIGKILL)
            await self.ended.wait()

    def has_ended(self, status: int) -> None:
        """Record what waitpid returned. For `Processes`, which waits for all."""
        self._popen.returncode = os.waitstatus_to_exitcode(status)
        if self._popen.returncode == -signal.SIGKILL and killed_so_far() > self._killed_before:
            self._cause = ", probably because memory ran out"
        self.ended.set()


class Processes:
    """All children of this process, including those that it adopts. One event loop, in the main thread."""

    def __init__(self) -> None:
        self._own: dict[int, Process] = {}
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # what a child leaves behind becomes ours
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._reap)

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        directory: Path | None = None,
        stderr: int | None = None,
        pass_fds: Sequence[int] = (),
    ) -> Process:
        """Start a process that is killed when this one ends. Raises OSError."""
        parent = os.getpid()

        def die_with_parent() -> None:
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # it ended before that
                os._exit(1)

        popen = subprocess.Popen(
            command,
            env=environment,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stderr=stderr,
            pass_fds=pass_fds,
            process_group=0,  # this process handles signals for all of a terminal's processes
            preexec_fn=die_with_parent,  # noqa: PLW1509 - other threads only pass on logs, and hold no locks of libc
        )
        with suppress(OSError):  # it has ended, or there is no /proc to write to
            # When memory runs out, the kernel takes this process last: it starts the others again.
            badness = min(_MAX_BADNESS, int(_BADNESS.read_text()) + _MORE_BADNESS)
            Path(f"/proc/{popen.pid}/oom_score_adj").write_text(str(badness))
        process = self._own[popen.pid] = Process(popen)
        return process

    def kill_adopted(self) -> None:
        """Kill what ended processes left behind."""
        for child in children(os.getpid()):
            if child not in self._own:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)

    async def end_all(self) -> None:
        """Kill what is left, and wait until nothing remains."""
        while self._reap():
            for child in children(os.getpid()):
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            await asyncio.sleep(_POLL_SECONDS)
        # The signal of one with many threads can come after that, when the loop's end can no longer take it.
        asyncio.get_running_loop().remove_signal_handler(signal.SIGCHLD)

    def _reap(self) -> bool:
        """Take note of those that have ended; whether any child is left."""
        try:
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if process := self._own.pop(found[0], None):
                    process.has_ended(found[1])
        except ChildProcessError:
            return False
        return True


def children(parent: int) -> list[int]:
    """The live child processes of a process."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # As bytes: a process may have any name, and we see those of other users' processes too.
            state, ppid = path.read_bytes().rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):
            continue  # it has ended
        if int(ppid) == parent and state != b"Z":
            found.append(int(path.parent.name))
    return found


def cpu_seconds(pid: int) -> float:
    """The CPU time that a process has used; 0 once it has ended."""
    try:
        user, system = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[11:13]
    except (OSError, ValueError):
        return 0.0
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _prctl(option: int, value: int) -> None:
    _LIBC.prctl(option, value)
