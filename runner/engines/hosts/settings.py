"""What the engine process is told about other hosts, in its environment."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Self

from shared import VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping
    from pathlib import Path

_HOSTS = "COG_TRITON_HOSTS"
_SECRET = "COG_TRITON_HOSTS_SECRET"  # noqa: S105 - its name
ENGINE_DIR = "COG_TRITON_ENGINE_DIR"
"""Where a host that has joined has the engine."""
FAILURE = "COG_TRITON_FAILURE"
"""The file in which a process on such a host says why it ended."""
CLUSTER = "cluster"
"""Instead of the path of a host file: mpirun finds the hosts itself."""
LEAST_SECRET = 16
"""Characters of the secret by which hosts know each other, at least."""


@dataclass(frozen=True, slots=True)
class HostsSettings:
    """How this host, the first, finds the others."""

    address: str
    """`host:port`, by which they reach it."""
    gpus: int
    """How many this host has."""
    seconds: float
    """How long it waits for them."""
    mpi_hosts: str | None = None
    """Instead of hosts that join: mpirun's host file, or `cluster` if mpirun finds the hosts itself."""
    secret: bytes = field(default=b"", repr=False)

    def environment(self) -> dict[str, str]:
        """What `from_environment` reads."""
        told = {name: value for name, value in asdict(self).items() if name != "secret"}
        return {_HOSTS: json.dumps(told), _SECRET: self.secret.decode()}

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str]) -> Self | None:
        """None when no other hosts are asked for. The variables are removed: no child needs them."""
        secret, told = environment.pop(_SECRET, ""), environment.pop(_HOSTS, None)
        return None if told is None else cls(**json.loads(told), secret=secret.encode())


def identity(kind: str, engine_dir: Path) -> dict[str, str]:
    """What must be the same on all hosts of an engine."""
    digest = hashlib.sha256()
    for name in ("manifest.json", "config.json", "engine/config.json"):
        path = engine_dir / name
        digest.update(path.read_bytes() if path.is_file() else b"-")
    files = digest.hexdigest()[:16]
    return {"cog-triton": VERSION, "engine": kind, "the digest of the engine's files": files}


def difference(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str | None:
    """How two hosts differ, in words for the other one, to which ours is "there"."""
    for name, own in ours.items():
        if (other := theirs.get(name)) != own:
            return f"{name} is {own} there and {other} here"
    return None
