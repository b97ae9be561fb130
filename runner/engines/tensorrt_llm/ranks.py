"""One of the ranks of an engine, in its own process; launcher.py starts them."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from contextlib import suppress

from runner.engines.hosts.link import LinkLost, connect

LAUNCH_SECRET = "COG_TRITON_LAUNCH_SECRET"  # noqa: S105 - the name of the variable
# A rank's last words to the launcher.
IN_ORDER = {"ends": "in order"}
ON_SIGNAL = {"ends": "on SIGTERM"}
# What Open MPI tells a process about itself.
_RANK = "OMPI_COMM_WORLD_RANK"
_SIZE = "OMPI_COMM_WORLD_SIZE"
_LOCAL_SIZE = "OMPI_COMM_WORLD_LOCAL_SIZE"
_SECONDS_TO_FINALIZE = 0.5  # of the second that an engine process has to end
_MAX_TEXT = 4096
_SECONDS_TO_NOTE = 5.0


def finalize_mpi() -> None:
    """Leave MPI, which TensorRT-LLM enters when it is imported; for the thread that imported it, at its end.

    mpirun counts a rank that ends without it as failed, and kills the others. The ranks finalise together: if
    one does not come, the alarm ends this process, whatever holds the GIL.
    """
    if mpi := sys.modules.get("mpi4py.MPI"):
        signal.setitimer(signal.ITIMER_REAL, _SECONDS_TO_FINALIZE)
        mpi.Finalize()
        signal.setitimer(signal.ITIMER_REAL, 0)


def hosts_and_share() -> tuple[int, int]:
    """On how many hosts the ranks are, and how many on each; (1, all) if MPI does not say."""
    size = int(os.environ.get(_SIZE, "1"))
    share = int(os.environ.get(_LOCAL_SIZE, size))
    return size // share, share


class Rank:
    """The rank that this process is."""

    def __init__(self, name: str, address: str | None) -> None:
        """Make a link to the launcher: by the name of its socket, from another host by its address."""
        self.number = int(os.environ[_RANK])
        secret = os.environ.pop(LAUNCH_SECRET).encode()
        self._link = connect(name if self.number == 0 or address is None else address, secret)
        self._link.send({"rank": self.number})
        self.bridge: socket.socket | None = None
        """The first rank's connection to the bridge."""
        if self.number == 0:
            _, (descriptor,), _, _ = socket.recv_fds(self._link.connection, 1, 1)
            self.bridge = socket.socket(fileno=descriptor)
        self._noted = threading.Event()
        # Blocked here, and so in every thread that starts from now on: one of them waits for it.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=self._end_on_signal, name="signal", daemon=True).start()
        threading.Thread(target=self._end_with_launcher, name="launcher", daemon=True).start()

    def fail(self, text: str) -> None:
        """Have the launcher tell the bridge why this rank cannot load."""
        self._link.send({"failed": text[:_MAX_TEXT]})
        self._noted.wait(_SECONDS_TO_NOTE)

    def announce_end(self, last_words: dict[str, str] = IN_ORDER) -> None:
        """Have the launcher know that this rank's end is not what ends the others."""
        with suppress(LinkLost):
            self._link.send(last_words)

    def _end_on_signal(self) -> None:
        """Open MPI ends ranks by SIGTERM: all once one has ended, and a daemon its own when it has to end."""
        signal.sigwait({signal.SIGTERM})
        self.announce_end(ON_SIGNAL)
        os._exit(1)

    def _end_with_launcher(self) -> None:
        try:
            self._link.receive()
            self._noted.set()
            self._link.receive()
        except LinkLost:
            os._exit(1)
