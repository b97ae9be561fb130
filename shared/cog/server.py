"""How Cog's HTTP server is started for one of our predictors, as the images do."""

from __future__ import annotations

import errno
import os
import secrets
import socket
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path

from shared.errors import PortInUse, SettingInvalid
from shared.layout import PROJECT_ROOT
from shared.resolving import resolved, written

BACKLOG = 4096
"""How many connections may wait to be accepted."""
_PORT_DIGITS = 5  # of a text with thousands, Python makes no number
_GIVEN_BY_CHANCE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST_PORT = 10_000  # below are many that programs have by custom
_ATTEMPTS = 100
_MAX_HELD = 64  # ports; each costs a descriptor
_held: deque[socket.socket] = deque()
# A runner's server is supervised, and drained before it ends.
SERVERS = {"builder": "cli.builder_server", "runner": "runner.lifecycle"}


def server_command(package: str, host: str) -> list[str]:
    """The program that serves the predictor of `package`, which is the working directory."""
    return [sys.executable, "-m", SERVERS[package], "--host", host]


def server_environment(port: int, concurrency: int | None = None) -> dict[str, str]:
    """What the server of a predictor needs in its environment.

    `concurrency`: how many predictions run or wait at the same time; None: as many as the engine can queue.
    Cog starts its worker as the first `python` on PATH, so ours must come first. With PYTHONSAFEPATH the
    working directory (the package itself) does not shadow modules of other packages.
    """
    environment = {
        "PORT": str(port),
        "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]),  # noqa: PTH120 - sys.executable must not be resolved: an environment is found by its link
        "PYTHONPATH": str(PROJECT_ROOT),
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if concurrency is not None:
        environment["MAX_PREDICTIONS"] = str(concurrency)
        # Cog frees a place some time after the answer.
        environment["COG_MAX_CONCURRENCY"] = str(-(-concurrency * 5 // 4))
    return environment


def port_number(text: str) -> int:
    """The port that a setting or an option names. Raises SettingInvalid."""
    if not (text.isascii() and text.isdigit() and len(text) <= _PORT_DIGITS and 1 <= int(text) <= 65535):
        raise SettingInvalid(setting="PORT", value=text, reason="a port must be a number from 1 to 65535")
    return int(text)


def free_port() -> int:
    """A TCP port on loopback that nothing listens on, and that no other process is given by this function.

    Preferably one below the range from which the kernel picks ports for connections: a port in that range
    might soon be taken by a connection of another program. It stays bound while this process lives, or until
    many more have been given. Servers can listen on it all the same, since they bind with SO_REUSEADDR.
    """
    try:
        by_chance = int(_GIVEN_BY_CHANCE.read_text().split()[0])
    except (OSError, ValueError):
        by_chance = 0
    for _ in range(_ATTEMPTS if by_chance > _FIRST_PORT else 0):
        with suppress(OSError):
            return _hold(_FIRST_PORT + secrets.randbelow(by_chance - _FIRST_PORT))
    return _hold(0)


def _hold(port: int) -> int:
    """Raises OSError when the port is taken or held."""
    holder = socket.socket()
    try:
        holder.bind(("127.0.0.1", port))
        # For the server. Not before `bind`, which would then take a port that another process holds.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except OSError:
        holder.close()
        raise
    _held.append(holder)
    if len(_held) > _MAX_HELD:
        _held.popleft().close()
    return int(holder.getsockname()[1])


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises PortInUse when the port is taken, SettingInvalid when nothing can
    listen there.
    """
    listener = _bound(host, port, None)
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


def refuse_used_port(port: int, host: str = "127.0.0.1", setting: str | None = None) -> None:
    """Raise PortInUse when something listens on the port already, SettingInvalid when nothing can listen
    there.

    `setting`: the one that has both, `host:port`; None: they are --host and PORT.
    """
    _bound(host, port, setting).close()


def _bound(host: str, port: int, setting: str | None) -> socket.socket:
    listener = None
    try:
        family, address = resolved(host, port)
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as problem:
        if listener is not None:
            listener.close()
        if problem.errno == errno.EADDRINUSE:
            raise PortInUse(port=port) from None
        reason = f"nothing can listen there: {problem.strerror or problem}"
        is_host = isinstance(problem, socket.gaierror) or problem.errno == errno.EADDRNOTAVAIL
        if setting is None and is_host:
            raise SettingInvalid(setting="--host", value=host, reason=reason) from None
        raise SettingInvalid(setting=setting or "PORT", value=written(host, port), reason=reason) from None
    return listener
