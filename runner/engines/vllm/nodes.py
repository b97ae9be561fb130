"""A vLLM engine on several hosts: a node on each, in vLLM's own multi-node mode.

The engine core and its share of workers are on the first host, each other host runs a node.py with as many.
The core does not notice that a node is gone, and would wait for minutes: the link to its host shows it.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import socket
import struct
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from runner.engines.hosts.gathering import Gathering
from runner.engines.hosts.settings import HostsSettings, identity

if TYPE_CHECKING:
    from pathlib import Path

    from shared.errors import CogTritonError

_SIOCGIFADDR = 0x8915
_INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")


class Place(NamedTuple):
    """Which of the nodes this is, and where the first one is."""

    rank: int
    nodes: int
    address: str
    port: int

    @property
    def arguments(self) -> dict[str, Any]:
        """The engine arguments that say so."""
        return {
            "nnodes": self.nodes,
            "node_rank": self.rank,
            "master_addr": self.address,
            "master_port": self.port,
            "distributed_executor_backend": "mp",
        }


class Nodes:
    """The other hosts of an engine, which have been told to start."""

    def __init__(self, settings: HostsSettings, engine_dir: Path, needed: int) -> None:
        """Raises HostsMissing and HostLost."""
        self.failure: CogTritonError | None = None
        """Why the engine cannot go on."""
        self._gathering = Gathering(settings, identity("vllm", engine_dir))
        hosts = self._gathering.spread(needed).hosts
        address = settings.address.rpartition(":")[0].strip("[]")
        own = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)[0][4][0]
        self.place = Place(0, len(hosts) + 1, str(own), _free_port(str(own)))
        use_address(self.place.address)
        for rank, host in enumerate(hosts, 1):
            host.run(["vllm-node", *map(str, self.place._replace(rank=rank))])
        threading.Thread(target=self._watch, name="nodes", daemon=True).start()

    def _watch(self) -> None:
        """End the core with the first node that ends, whatever it is doing; it does not notice itself."""
        self.failure = self._gathering.failures.get()
        while True:
            for child in multiprocessing.active_children():
                child.kill()
            self._gathering.failures.get()


def nodes_of(arguments: dict[str, Any], engine_dir: Path) -> Nodes | None:
    """The other hosts of an engine with these arguments; None if this one has enough GPUs.

    Raises HostsMissing and HostLost.
    """
    settings = HostsSettings.from_environment(os.environ)
    needed = 1
    for name in ("tensor_parallel_size", "pipeline_parallel_size"):
        needed *= arguments.get(name) or 1
    if settings is None or needed <= settings.gpus:
        return None
    return Nodes(settings, engine_dir, needed)


def use_address(address: str) -> None:
    """Have vLLM, Gloo and NCCL talk from this address of ours, unless the operator says otherwise."""
    os.environ.setdefault("VLLM_HOST_IP", address)
    for _, interface in socket.if_nameindex():
        if _address_of(interface) == address:
            for name in _INTERFACES:
                os.environ.setdefault(name, interface)


def _address_of(interface: str) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            told = fcntl.ioctl(any_socket, _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        except OSError:
            return None  # it has none
    return socket.inet_ntoa(told[20:24])


def _free_port(address: str) -> int:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as listener:
        listener.bind((address, 0))
        port: int = listener.getsockname()[1]
        return port
