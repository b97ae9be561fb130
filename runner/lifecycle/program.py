"""From the arguments and the environment to a supervisor that runs."""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from runner.lifecycle.control import SetupFailed, encode
from runner.lifecycle.run_directory import run_directory
from runner.lifecycle.server import Front
from runner.lifecycle.supervisor import Supervisor
from shared.cog.server import port_number, refuse_used_port
from shared.core_dumps import no_core_dumps
from shared.errors import CogTritonError, RunDirectoryUnusable, SettingInvalid
from shared.log_pipe import never_block, stderr_is_terminal

if TYPE_CHECKING:
    from pathlib import Path

    from runner.lifecycle.server import Server


def main() -> int:
    """Run it until it ends; return its exit status."""
    no_core_dumps()
    with never_block(1, 2):
        return _main()


def _main() -> int:
    parser = argparse.ArgumentParser(prog="runner.lifecycle")
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--port", default=os.environ.get("PORT") or "5000")
    parser.add_argument("--end-on-failure", action="store_true", help="end when the set-up fails")
    parser.add_argument(
        "--caller-fd", type=int, help="start no HTTP server: the caller serves, and gets messages over this"
    )
    options = parser.parse_args()
    caller = server = None
    try:
        if options.caller_fd is not None:
            caller = socket.socket(fileno=options.caller_fd)
        else:
            server = _server(options.host, port_number(options.port))
        with run_directory() as directory:
            return asyncio.run(_run(directory, server, caller, end_on_failure=options.end_on_failure))
    except CogTritonError as error:
        with suppress(OSError):
            if caller is not None and isinstance(error, RunDirectoryUnusable):  # so no supervisor tells it
                with caller:
                    caller.sendall(encode(SetupFailed(str(error))))
            else:
                sys.stderr.write(f"{error}\n")
        return 1


async def _run(
    directory: Path, server: Server | None, caller: socket.socket | None, *, end_on_failure: bool
) -> int:
    """The exit status. Raises what ends the runner, unless the log has it already."""
    on_ready = partial(_tell_ready, server) if server else lambda _seconds: None
    supervisor = Supervisor(directory, server, end_on_failure=end_on_failure, on_ready=on_ready)
    try:
        await supervisor.run(caller)
    except CogTritonError as error:
        if not supervisor.has_told(error):
            raise
        return 1
    return 0


def _server(host: str, port: int) -> Server:
    """The HTTP server of the settings. Raises SettingInvalid and PortInUse."""
    match os.environ.get("SERVER") or "front":
        case "front":
            return Front(host, port, tls=bool(os.environ.get("TLS_CERTIFICATE")))
        case "cog":
            from runner.cog.server import CogServer
            from runner.settings import Settings

            for name in ("TLS_CERTIFICATE", "TLS_KEY"):
                if value := os.environ.get(name):
                    reason = "with SERVER=cog, Cog's own server answers, which has no TLS"
                    raise SettingInvalid(setting=name, value=value, reason=reason)
            if Settings.from_environment(os.environ).cog_api_needs_key:
                reason = "with SERVER=cog, Cog's own server answers, which asks nobody for a key"
                raise SettingInvalid(setting="COG_API_NEEDS_KEY", value="true", reason=reason)
            refuse_used_port(port, host)
            return CogServer(host, port)
        case other:
            raise SettingInvalid(setting="SERVER", value=other, reason="it must be front or cog")


def _tell_ready(server: Server, seconds: float) -> None:
    """Say where to send a prompt; to a person at a terminal, with an example."""
    from shared.logs import configure_logging, get_logger

    configure_logging()
    get_logger("runner.lifecycle").info("ready", url=server.url, seconds=round(seconds, 3))
    if stderr_is_terminal():
        from runner.settings import Settings

        needs_key = Settings.from_environment(os.environ).cog_api_needs_key
        with suppress(OSError):
            sys.stderr.write(_EXAMPLE.format(url=server.url, key=_KEY if needs_key else ""))


_KEY = """ -H "Authorization: Bearer $API_KEY\""""
_EXAMPLE = """
Ready: {url}. Ctrl-C stops it. Send a prompt from another terminal:

  curl -N {url}/predictions{key} -H 'Accept: text/event-stream' \\
    -H 'Content-Type: application/json' -d '{{"input": {{"prompt": "Hello"}}}}'
"""
