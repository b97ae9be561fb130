"""An engine for several GPUs: one process (rank) for each, started by mpirun, on one host or on several.

The process that the bridge started becomes their launcher. mpirun gives its processes no open files, so each
rank makes a link to the launcher (ranks.py): the first one gets the bridge's socket over it, the others
report over it why they cannot load. A rank that ends in good order says so before; one that does not is why
the others end. When any of these processes ends, the rest do: mpirun ends its ranks when one fails, the
launcher ends with mpirun, and a rank ends when its link does.

On hosts that have joined (runner/engines/hosts), mpirun starts its daemons through agent.py instead of ssh.
"""

from __future__ import annotations

import os
import queue
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.engines.hosts import agent
from runner.engines.hosts.gathering import Gathering
from runner.engines.hosts.link import Link, LinkLost, Listener, silent
from runner.engines.hosts.settings import CLUSTER, identity
from runner.protocol.frames import StartFailedFrame, encode
from shared.errors import CogTritonError, HostLost, HostsMissing, TensorRTLLMNotLoaded
from shared.home import SCRATCH

from .ranks import IN_ORDER, LAUNCH_SECRET, ON_SIGNAL
from .settings import SERVER_ARGUMENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runner.engines.hosts.gathering import Host
    from runner.engines.hosts.settings import HostsSettings

_POLL_SECONDS = 0.1
_SECONDS_TO_END = 1.0
# mpirun would bind all threads of a rank to one core.
_MPIRUN = ("--allow-run-as-root", "--bind-to", "none")
_TO_OTHER_HOSTS = (LAUNCH_SECRET, SERVER_ARGUMENTS, "PYTHONPATH", "PYTHONSAFEPATH")
# With the names of Open MPI 4 and of 5. Daemons are started from here only: the others have no links.
_AGENT = ("OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent")
_NO_TREE = ("OMPI_MCA_plm_rsh_no_tree_spawn", "PRTE_MCA_plm_ssh_no_tree_spawn")


def launch(
    ranks: int, kind: str, engine_dir: Path, bridge: socket.socket, hosts: HostsSettings | None = None
) -> int:
    """Run the engine as that many ranks; return mpirun's exit status.

    Raises TensorRTLLMNotLoaded when there is no mpirun, HostsMissing when there are too few hosts, HostLost
    when one is lost, and the error of a host that cannot do its part.
    """
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        raise TensorRTLLMNotLoaded(reason="there is no mpirun, which starts the ranks of an engine")
    launcher = _Launcher(ranks, bridge)
    # mpirun leaves its files when it is killed. Slurm would tell the other hosts the same directory.
    if (scratch := os.environ.get(SCRATCH)) and (hosts is None or hosts.mpi_hosts != CLUSTER):
        launcher.environment["TMPDIR"] = scratch
    command = [sys.executable, "-m", "runner.engines.process", "--kind", kind]
    command += ["--engine-dir", str(engine_dir), "--rank-socket", launcher.name]
    with _placed(ranks, kind, engine_dir, launcher, hosts) as (options, more):
        # By its name: other hosts would be told its path as if theirs were in the same place.
        process = subprocess.Popen(
            ["mpirun", *_MPIRUN, *options, "-n", str(ranks), *command, *more],
            executable=mpirun,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **launcher.environment},
        )
        try:
            launcher.attend(process)
        finally:
            process.kill()
            process.wait()
            launcher.end_ranks()
    return process.returncode


@contextmanager
def _placed(
    ranks: int, kind: str, engine_dir: Path, launcher: _Launcher, hosts: HostsSettings | None
) -> Iterator[tuple[list[str], list[str]]]:
    """Mpirun's options that say where the ranks are, and what else the ranks are told."""
    if hosts is None or (hosts.mpi_hosts is None and ranks <= hosts.gpus):
        yield ["--oversubscribe"], []
        return
    launcher.listen(hosts.address)
    exported = [word for name in _TO_OTHER_HOSTS if name in launcher.known for word in ("-x", name)]
    if hosts.mpi_hosts is not None:
        named = [] if hosts.mpi_hosts == CLUSTER else ["--hostfile", hosts.mpi_hosts]
        yield [*named, *exported], ["--rank-address", launcher.address]
        return
    gathering = launcher.gathering = Gathering(hosts, identity(kind, engine_dir))
    found = gathering.spread(ranks)
    launcher.hosts = {host.address: host for host in found.hosts}
    launcher.start_by_agent()
    with tempfile.NamedTemporaryFile("w", prefix="cog-triton-hosts-", dir=os.environ.get(SCRATCH)) as file:
        own = launcher.address.rpartition(":")[0].strip("[]")
        file.writelines(f"{host} slots={found.per_host}\n" for host in (own, *launcher.hosts))
        file.flush()
        yield ["--hostfile", file.name, *exported], ["--rank-address", launcher.address]


class _Launcher:
    def __init__(self, ranks: int, bridge: socket.socket) -> None:
        self.name = f"@cog-triton-{os.getpid()}-{secrets.token_hex(8)}"
        self.address = ""
        self.hosts: dict[str, Host] = {}
        self.gathering: Gathering | None = None
        secret = secrets.token_hex(32)
        self.environment = {LAUNCH_SECRET: secret, agent.ADDRESS: self.name}
        self._ranks = ranks
        self._bridge = bridge
        self._told: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._lost: queue.SimpleQueue[HostLost] = queue.SimpleQueue()
        # Of each rank that has ended: its host ("" for this one), and its last words, None if it had none.
        self._ends: queue.SimpleQueue[tuple[str, dict[str, Any] | None]] = queue.SimpleQueue()
        self._first: Link | None = None
        self._first_ended = threading.Event()
        self._listener = Listener(secret.encode(), self._serve)
        self._listener.listen(self.name)

    @property
    def known(self) -> set[str]:
        """The names of mpirun's variables."""
        return {*os.environ, *self.environment}

    def listen(self, address: str) -> None:
        """Listen for ranks on other hosts, on any port."""
        try:
            self.address = self._listener.listen(f"{address.rpartition(':')[0]}:0")
        except OSError as problem:
            reason = f"this host cannot listen on {address}: {problem.strerror or problem}"
            raise HostsMissing(reason=reason) from None

    def start_by_agent(self) -> None:
        """Have mpirun reach the other hosts through us."""
        path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
        python = Path(sys.executable).name  # a path with a space would be two words
        self.environment |= dict.fromkeys(_AGENT, f"{python} -m {agent.__name__}")
        self.environment |= dict.fromkeys(_NO_TREE, "1") | {"PATH": path}

    def attend(self, process: subprocess.Popen[bytes]) -> None:
        """Pass on what is reported, until mpirun has ended. Raises HostLost, and the failure of a host."""
        while process.poll() is None:
            self._pass_on(_POLL_SECONDS)
            if self.gathering is not None and not self.gathering.failures.empty():
                raise self.gathering.failures.get()
            if not self._lost.empty():
                raise self._lost.get()
        self._pass_on(0)
        if self.gathering is None and not self._is_over() and (host := self._first_to_end()):
            raise HostLost(host=host, reason="a rank there ended before the others")

    def _first_to_end(self) -> str:
        """The host because of which the ranks ended; "" if it is this one, or if they ended in order.

        It is that of the first rank that ended without a word, or else of the first that a signal ended.
        mpirun's exit status does not say it: Open MPI 5 may return 0 when it has lost a host.
        """
        signalled = []
        with suppress(queue.Empty):
            for _ in range(self._ranks):
                host, last_words = self._ends.get(timeout=_SECONDS_TO_END)
                if last_words is None:
                    return host
                if last_words == ON_SIGNAL:
                    signalled.append(host)
        return signalled[0] if signalled else ""

    def _is_over(self) -> bool:
        """Whether the bridge has ended the engine."""
        try:
            return not self._bridge.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except OSError:
            return False

    def end_ranks(self) -> None:
        """Make sure that nobody else writes to the bridge any more."""
        if self._first is not None:
            with suppress(OSError):
                self._first.connection.shutdown(socket.SHUT_WR)
            self._first_ended.wait(_SECONDS_TO_END)

    def _pass_on(self, seconds: float) -> None:
        try:
            while True:
                text = self._told.get(timeout=seconds) if seconds else self._told.get_nowait()
                self._bridge.sendall(encode(StartFailedFrame(text)))
        except queue.Empty:
            return

    def _serve(self, link: Link) -> None:
        """A rank's link, or mpirun's agent's."""
        local = link.connection.family == socket.AF_UNIX
        host = "" if local else str(link.connection.getpeername()[0])
        told: dict[str, Any] = {}
        last_words = None
        try:
            told = link.receive()
            if "start" in told:
                # Of mpirun's agent only: elsewhere, what travelled unencrypted may be known to anybody.
                link.send({"started": local and self._start(told)})
            elif told == {"rank": 0} and local:
                self._first = link
                socket.send_fds(link.connection, [b"0"], [self._bridge.fileno()])
            while True:
                last_words = link.receive()
                if last_words not in (IN_ORDER, ON_SIGNAL):
                    self._told.put(str(last_words["failed"]))
                    link.send({"noted": True})
        except (LinkLost, KeyError, OSError) as ended:
            if "rank" in told:
                self._ends.put((host, last_words))
            if link is self._first:
                self._first_ended.set()
            elif not local and silent(ended):
                # Where the hosts are a cluster's, nothing else tells: mpirun waits for minutes.
                self._lost.put(HostLost(host=host, reason=ended))

    def _start(self, told: dict[str, Any]) -> bool:
        host = self.hosts.get(told["start"])
        if host is None:
            return False
        try:
            host.run(told["command"])
        except CogTritonError:
            return False
        return True
