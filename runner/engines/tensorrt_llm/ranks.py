"""An engine for several GPUs: one process (rank) for each, started by mpirun.

The process that the bridge started becomes their launcher. mpirun gives its processes no open files, so each
rank connects to a socket of the launcher: the first one gets the bridge's socket over it. The others tell
over it why they cannot load. Whichever process of them all ends, the rest do: mpirun ends its ranks when one
fails, the launcher ends with mpirun, and a rank ends when its connection to the launcher does.
"""

from __future__ import annotations

import os
import secrets
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading

from runner.protocol.frames import StartFailedFrame, encode
from shared.errors import TensorRTLLMNotLoaded

# What Open MPI tells a process of itself.
_RANK = "OMPI_COMM_WORLD_RANK"
_NUMBER = struct.Struct("<I")
_PEER = struct.Struct("3i")  # struct ucred: pid, uid, gid
_POLL_SECONDS = 0.1
_SECONDS_TO_FINALIZE = 0.5  # of the second that an engine process has for its end
_MOST_TEXT = 4096


def launch(ranks: int, arguments: list[str], bridge: socket.socket) -> int:
    """Run the engine process with these arguments as so many ranks; return mpirun's exit status.

    Raises TensorRTLLMNotLoaded when there is no mpirun.
    """
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        raise TensorRTLLMNotLoaded(reason="there is no mpirun, which starts the ranks of an engine")
    name = f"cog-triton-{os.getpid()}-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")  # in no directory: nothing is left of it, however we end
        listener.listen(ranks)
        # mpirun would bind all threads of a rank to one core.
        command = [mpirun, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)]
        command += [sys.executable, "-m", "runner.engines.process", *arguments, "--rank-socket", name]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        _attend(process, listener, bridge)
    return process.returncode


def _attend(process: subprocess.Popen[bytes], listener: socket.socket, bridge: socket.socket) -> None:
    """Take the ranks' connections, and pass on what they say, until mpirun has ended."""
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        while True:
            ended = process.poll() is not None
            for key, _ in selector.select(0 if ended else _POLL_SECONDS):
                if key.fileobj is listener:
                    connection, _ = listener.accept()
                    if _is_ours(connection):
                        _greet(connection, bridge)
                        selector.register(connection, selectors.EVENT_READ)
                    else:
                        connection.close()
                    continue
                connection = key.fileobj  # type: ignore[assignment] # only sockets are registered
                if text := connection.recv(_MOST_TEXT):
                    bridge.sendall(encode(StartFailedFrame(text.decode())))
                else:
                    selector.unregister(connection)
            if ended:
                return


def _greet(connection: socket.socket, bridge: socket.socket) -> None:
    """Take the rank's number; give the first one its way to the bridge."""
    if connection.recv(_NUMBER.size, socket.MSG_WAITALL) == _NUMBER.pack(0):
        socket.send_fds(connection, [b"0"], [bridge.fileno()])


def _is_ours(connection: socket.socket) -> bool:
    """Whether the other side runs as the user that we do."""
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return bool(_PEER.unpack(peer)[1] == os.getuid())


def finalize_mpi() -> None:
    """Leave MPI, which TensorRT-LLM enters when it is imported; for the thread that imported it, at its end.

    mpirun counts a rank that ends without as failed, and kills the others. The ranks finalise together: where
    one does not come, the alarm ends this process, whatever holds the GIL.
    """
    if mpi := sys.modules.get("mpi4py.MPI"):
        signal.setitimer(signal.ITIMER_REAL, _SECONDS_TO_FINALIZE)
        mpi.Finalize()
        signal.setitimer(signal.ITIMER_REAL, 0)


class Rank:
    """The rank that this process is."""

    def __init__(self, name: str) -> None:
        """Connect to the launcher; `name` is that of its socket."""
        self.number = int(os.environ[_RANK])
        self._link = socket.socket(socket.AF_UNIX)
        self._link.connect(f"\0{name}")
        self._link.sendall(_NUMBER.pack(self.number))
        self.bridge: socket.socket | None = None
        """The first rank's way to the bridge."""
        if self.number == 0:
            _, (descriptor,), _, _ = socket.recv_fds(self._link, 1, 1)
            self.bridge = socket.socket(fileno=descriptor)
        threading.Thread(target=self._end_with_launcher, name="launcher", daemon=True).start()

    def fail(self, text: str) -> None:
        """Have the launcher tell the bridge why this rank cannot load."""
        self._link.sendall(text.encode()[: _MOST_TEXT - 1])

    def _end_with_launcher(self) -> None:
        self._link.recv(1)
        os._exit(1)
