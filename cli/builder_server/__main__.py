"""The builder's HTTP server: `python -m cli.builder_server [--host ADDRESS] [--port PORT]`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import uvloop

import builder
from cli.builder_server.archive import Archive
from cli.builder_server.work import BuildWork
from runner.front.addresses import allowed_addresses
from runner.front.app import App
from runner.front.bodies import Bodies
from runner.front.browsers import Browsers
from runner.front.cog.api import CogApi
from runner.front.cog.schema import Schema
from runner.front.cog.store import Store
from runner.front.cog.webhooks import Webhooks
from runner.front.health import Health
from runner.front.server import make_server
from runner.prediction.admission import Admission
from runner.settings import Settings
from shared.cog.server import listen, port_number
from shared.core_dumps import no_core_dumps
from shared.errors import CogTritonError, InputInvalid
from shared.hub_settings import check_hub_settings
from shared.log_pipe import never_block
from shared.logs import configure_logging, get_logger, register_secret

if TYPE_CHECKING:
    import socket

    from runner.front.cog.schema import Asked
    from runner.front.http import Request

log = get_logger()

_PACKAGE = Path(builder.__file__ or "").parent
_GRACE_SECONDS = 5
_MAX_TOKEN = 8192  # bytes; those of OAuth have some thousand


class BuilderServer:
    """Everything behind the port. For one event loop."""

    def __init__(self, settings: Settings, directory: Path, listener: socket.socket | None = None) -> None:
        """`directory` is where engine.tar is written, `listener` where clients connect to.

        Raises SettingInvalid.
        """
        self._archive = Archive(directory / "engine.tar")
        self._addresses = allowed_addresses(settings)
        self._admission = Admission(1, fix="run more builders")
        self._webhooks = Webhooks(self._addresses)
        self._bodies = Bodies(self._admission, settings.max_body_bytes)
        browsers = Browsers.of(settings, listener, keys=False)
        self.app = App(settings.max_body_bytes, browsers=browsers, keep_alive=settings.event_keep_alive)
        self._cog = CogApi(
            Schema.load(_PACKAGE, ignore_unknown=settings.ignore_unknown_inputs),
            self._start,
            Store(settings.keep_predictions, settings.keep_seconds, time.monotonic),
            self._webhooks,
            self._bodies,
        )
        self._cog.add_to(self.app)
        health = Health(self._admission)
        health.add_to(self.app)
        health.ready(lambda: True)
        self.app.router.add("GET", "/predictions/{id}/output", self._archive.send)

    async def close(self) -> None:
        """Cancel what runs."""
        await self._cog.close()
        await self._bodies.close()
        await self._webhooks.close(_GRACE_SECONDS)

    async def _start(self, asked: Asked, prediction_id: str, request: Request) -> BuildWork:
        upload = None
        if asked.output_address is not None:
            await self._addresses.check(asked.output_address, request.sender)
            address = _address_of_file(asked.output_address, self._archive.path.name)
            upload = (self._addresses, address, request.sender)
        token = asked.inputs.get("hf_token")
        # It becomes an environment variable: more would not fit, and a NUL would end it.
        if token and (len(token.encode()) > _MAX_TOKEN or "\0" in token):
            raise InputInvalid(where="input.hf_token", reason="it is not a token of Hugging Face")
        ticket = request.take_place() or await self._admission.enter()
        if token:
            register_secret(token)  # kept for good, so not for a request that is refused
        host = request.header(b"host") or "localhost"
        return BuildWork(
            asked.inputs["config"],
            token,
            self._archive.path,
            ticket,
            f"{request.scope['scheme']}://{host}/predictions/{prediction_id}/output",
            upload,
            lambda sha256: self._archive.built(prediction_id, sha256),
        )


def _address_of_file(address: str, name: str) -> str:
    """Where a file goes: below `address`, or to `address` itself if it has a query, as signed ones do."""
    return address if urlsplit(address).query else f"{address.rstrip('/')}/{name}"


async def serve(settings: Settings, directory: Path, listener: socket.socket) -> None:
    """Serve until a signal arrives."""
    server = BuilderServer(settings, directory, listener)
    try:
        await make_server(server.app, settings.max_connections, _GRACE_SECONDS).serve(sockets=[listener])
    finally:
        await server.close()


def main() -> int:
    """Serve; the exit status is 1 when that cannot begin."""
    parser = argparse.ArgumentParser(prog="cli.builder_server")
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--port", default=os.environ.get("PORT") or "5000")
    options = parser.parse_args()
    no_core_dumps()
    with never_block(1, 2):
        return _main(options.host, options.port)


def _main(host: str, port: str) -> int:
    signal.signal(signal.SIGTERM, _end)
    try:
        configure_logging()
        check_hub_settings()
        settings = Settings.from_environment(os.environ)
        if token := os.environ.get("HF_TOKEN"):
            register_secret(token)
        directory = Path(os.environ.get("BUILDER_OUTPUT_DIR") or "/src")
        uvloop.run(serve(settings, directory, listen(host, port_number(port))))
    except CogTritonError as error:
        log.error(str(error))  # noqa: TRY400 - users see no traceback
        return 1
    except KeyboardInterrupt:  # uvicorn passes it on when it has served what was in progress
        pass
    return 0


def _end(_number: int, _frame: object) -> None:
    """Uvicorn raises its signals once more when it has served what was in progress: unwind, so that what is
    left of a build, and of the log, has its end.
    """
    sys.exit(0)


if __name__ == "__main__":
    sys.exit(main())
