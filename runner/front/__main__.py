"""The process that answers HTTP: `python -m runner.front --control PATH --listen-fd FD --heartbeat-fd FD`.

The supervisor listens at PATH (runner/lifecycle/control.py): it says where the engine is, and when to finish.
The first FD is the socket that clients connect to, which the supervisor also keeps open; the second is the
memory in which it sees that the event loop turns (runner/lifecycle/heartbeat.py).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from runner.front.engine import connect_to, tell_supervisor
from runner.front.freed_memory import keep_handing_back
from runner.front.front import Front
from runner.front.server import acceptors, make_server, tls_files
from runner.lifecycle.control import (
    Connection,
    Drain,
    Drained,
    EngineAddress,
    Refused,
    SetupFailed,
    Shutdown,
)
from runner.lifecycle.heartbeat import Heartbeat
from runner.settings import Settings
from shared.errors import CogTritonError
from shared.logs import configure_logging

if TYPE_CHECKING:
    import uvicorn

_COLLECT_AFTER = 50_000  # additional objects: those of some hundred requests


async def serve(control_path: str, listener: socket.socket, heartbeat: Heartbeat, restarts: int) -> int:
    """Serve until the supervisor ends, or a signal arrives; 1 when serving cannot begin.

    `restarts`: how many fronts of this runner have died.
    """
    heartbeat.beat(asyncio.get_running_loop())
    try:
        control = await Connection.connect(control_path)
    except OSError:  # the supervisor has ended already, and has said why
        return 1
    try:
        configure_logging()
        settings = Settings.from_environment(os.environ)
        front = Front(settings, lambda: control.send(Shutdown()), restarts, listener)
        server = make_server(front.app, settings.max_connections, settings.drain_seconds, tls_files(settings))
    except CogTritonError as error:
        control.send(Refused(str(error)))
        async for _ in control:  # until the supervisor has read it
            pass
        return 1
    tasks = [
        asyncio.create_task(_obey(front, control, server)),
        asyncio.create_task(keep_handing_back()),
    ]
    try:
        await server.serve(sockets=acceptors(listener))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await front.close()
        control.close()
    return 0


async def _obey(front: Front, control: Connection, server: uvicorn.Server) -> None:
    """Do what the supervisor says; when it ends, end immediately."""
    tasks: set[asyncio.Task[None]] = set()
    async for message in control:
        match message:
            case EngineAddress():
                tasks.add(asyncio.create_task(_load(front, control, message)))
            case SetupFailed(error):
                front.health.failed(error)
            case Drain(seconds):
                tasks.add(asyncio.create_task(_drain(front, control, seconds)))
    server.force_exit = server.should_exit = True


async def _load(front: Front, control: Connection, address: EngineAddress) -> None:
    front.metrics.add_triton(address.metrics_path)

    async def load() -> None:
        await front.load(Path(address.engine_dir), lambda: connect_to(address, front.settings))
        # What exists now stays: collections need not examine it again, nor run every few requests.
        gc.freeze()
        gc.set_threshold(_COLLECT_AFTER)

    if (error := await tell_supervisor(control, load())) is not None:
        front.health.failed(error)


async def _drain(front: Front, control: Connection, seconds: float) -> None:
    await front.drain(seconds)
    control.send(Drained())


def main() -> int:
    """Serve; the exit status is 1 when serving cannot begin."""
    parser = argparse.ArgumentParser(prog="runner.front")
    parser.add_argument("--control", required=True)
    parser.add_argument("--listen-fd", type=int, required=True)
    parser.add_argument("--heartbeat-fd", type=int, required=True)
    parser.add_argument("--restarts", type=int, default=0)
    options = parser.parse_args()
    listener = socket.socket(fileno=options.listen_fd)
    heartbeat = Heartbeat(options.heartbeat_fd)
    return uvloop.run(serve(options.control, listener, heartbeat, options.restarts))


if __name__ == "__main__":
    sys.exit(main())
