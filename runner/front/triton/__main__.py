"""The process that answers clients of Triton:

    python -m runner.front.triton --directory DIR --heartbeat-fd FD

DIR holds Triton's sockets; in FD's memory the supervisor sees that the event loop turns. It starts this where
one of the settings TRITON_HTTP_ADDRESS, TRITON_GRPC_ADDRESS and TRITON_METRICS_ADDRESS is set, whatever HTTP
server it runs, and again when it ends or hangs.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import resource
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from runner.front.descriptors import share_descriptors
from runner.front.server import acceptors, make_server
from runner.front.triton.api import http_app, metrics_app
from runner.front.triton.bodies import LARGEST
from runner.front.triton.leavers import Leavers
from runner.lifecycle.heartbeat import Heartbeat
from runner.settings import Settings
from runner.triton.server import TritonSockets
from shared.cog.server import listen
from shared.errors import CogTritonError
from shared.logs import configure_logging
from shared.signals import heeded

if TYPE_CHECKING:
    from collections.abc import Coroutine

    import uvicorn

    from runner.front.app import App
    from runner.front.triton.calls import Calls
    from runner.triton.address import Address

_GRACE_SECONDS = 4  # Triton takes one more, and then cuts them without a word
_MOST_MEMORY = 4 << 30
_METRICS_CONNECTIONS = 64
_COLLECT_AFTER = 50_000  # additional objects: a body may have millions


async def serve(settings: Settings, sockets: TritonSockets, heartbeat: Heartbeat) -> None:
    """Serve what the settings open, until a signal. Raises PortInUse and SettingInvalid."""
    heartbeat.beat(asyncio.get_running_loop())
    # Each may need another, to Triton.
    connections = max(1, share_descriptors(2 * settings.max_connections).connections // 2)
    over = asyncio.Event()
    for number in heeded():
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    servers: list[Coroutine[None, None, None]] = []
    if address := settings.triton_http_address:
        servers.append(_serve(http_app(settings, sockets), address, connections, over))
    if address := settings.triton_metrics_address:
        servers.append(_serve(metrics_app(sockets), address, _METRICS_CONNECTIONS, over))
    if address := settings.triton_grpc_address:
        from runner.front.triton import calls as grpc_calls  # importing grpc takes a tenth of a second

        leavers = Leavers(sockets.feed)
        calls = grpc_calls.Calls(
            sockets, leavers, min(settings.max_body_bytes, LARGEST), settings.admitted_at_once
        )
        await calls.start(address)
        servers.append(_stop(calls, over))
    await asyncio.gather(*servers)


async def _serve(app: App, address: Address, connections: int, over: asyncio.Event) -> None:
    server = make_server(app, connections, _GRACE_SECONDS)
    server.capture_signals = nullcontext  # type: ignore[method-assign,assignment] # there are several
    ending = asyncio.create_task(_end(server, over))
    try:
        await server.serve(sockets=acceptors(listen(*address)))
    finally:
        ending.cancel()


async def _end(server: uvicorn.Server, over: asyncio.Event) -> None:
    await over.wait()
    server.should_exit = True


async def _stop(calls: Calls, over: asyncio.Event) -> None:
    await over.wait()
    await calls.stop(_GRACE_SECONDS)


def main() -> int:
    """Serve; the exit status is 1 when serving cannot begin."""
    parser = argparse.ArgumentParser(prog="runner.front.triton")
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--heartbeat-fd", type=int, required=True)
    options = parser.parse_args()
    configure_logging()
    # Beyond it, this process ends and is started again, and nothing else suffers.
    resource.setrlimit(resource.RLIMIT_DATA, (_MOST_MEMORY, _MOST_MEMORY))
    gc.set_threshold(_COLLECT_AFTER)
    try:
        settings = Settings.from_environment(os.environ)
        heartbeat = Heartbeat(options.heartbeat_fd)
        uvloop.run(serve(settings, TritonSockets(options.directory), heartbeat))
    except CogTritonError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
