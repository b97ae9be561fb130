"""Two hosts on one machine: network namespaces that see nothing but each other. They need root."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_CLONE_NEWNET = 0x40000000


class Namespace(NamedTuple):
    """A host, as far as its network, its name and its shared memory go."""

    name: str
    address: str
    link: str

    def command(self, *words: str) -> list[str]:
        """These words, run there: `ip netns exec` and `unshare` become them, and stay the same process."""
        inside = ["ip", "netns", "exec", self.name, "unshare", "--uts", "--", "sh", "-c"]
        own = 'hostname "$0" && mount -t tmpfs tmpfs /dev/shm && exec "$@"'
        return [*inside, own, self.name, *words]

    def pids(self) -> list[int]:
        """Of the processes that run there."""
        told = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, check=False).stdout
        return [int(pid) for pid in told.split()]

    @contextmanager
    def inside(self) -> Iterator[None]:
        """What this thread connects to meanwhile, it reaches from this host."""
        outside = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            there = os.open(Path("/run/netns", self.name), os.O_RDONLY)
            try:
                _enter(there)
            finally:
                os.close(there)
            try:
                yield
            finally:
                _enter(outside)
        finally:
            os.close(outside)

    def cut(self) -> None:
        """Take its network away, as when its cable is pulled: nobody is notified."""
        ip("-n", self.name, "link", "set", self.link, "down")

    def mend(self) -> None:
        ip("-n", self.name, "link", "set", self.link, "up")


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@contextmanager
def two_namespaces() -> Iterator[tuple[Namespace, Namespace]]:
    mark = uuid.uuid4().hex[:8]
    hosts = [Namespace(f"cog{mark}{n}", f"10.231.77.{n}", f"v{mark}{n}") for n in (1, 2)]
    try:
        for host in hosts:
            ip("netns", "add", host.name)
        first, second = hosts
        ends = ("name", first.link, "netns", first.name, "type", "veth", "peer", "name", second.link)
        ip("link", "add", *ends, "netns", second.name)
        for host in hosts:
            ip("-n", host.name, "address", "add", f"{host.address}/24", "dev", host.link)
            for link in ("lo", host.link):
                ip("-n", host.name, "link", "set", link, "up")
        yield first, second
    finally:
        for host in hosts:
            for pid in host.pids():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            subprocess.run(["ip", "netns", "delete", host.name], check=False)
