"""A front of a few lines: it talks to its supervisor, and answers every GET with what it was told.

    python -m tests.support.stub_front --control PATH --listen-fd FD --heartbeat-fd FD

`GET /hang` blocks it for good, `GET /fail` fails the set-up; it is ready when Triton's metrics are there. While
the file STUB_FRONT_REFUSES exists, it cannot serve.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import time
from dataclasses import asdict
from pathlib import Path

from runner.lifecycle.control import Connection, Drain, Drained, EngineAddress, Ready, Refused, SetupFailed
from runner.lifecycle.heartbeat import Heartbeat
from shared.errors import SettingInvalid, TritonTokenizerError

DRAINING_SECONDS = float(os.environ.get("STUB_FRONT_DRAINS_FOR", "0.3"))
IGNORES_SIGTERM = "STUB_FRONT_IGNORES_SIGTERM" in os.environ
REFUSES = "STUB_FRONT_REFUSES" in os.environ and Path(os.environ["STUB_FRONT_REFUSES"]).exists()
LOADING_SECONDS = float(os.environ.get("STUB_FRONT_LOADS_FOR", "0"))


class StubFront:
    def __init__(self, control: Connection) -> None:
        self.control = control
        self.state: dict[str, object] = {"pid": os.getpid(), "status": "STARTING"}

    async def load(self, address: EngineAddress) -> None:
        self.state["address"] = asdict(address)
        await wait_open(address.promised[0])
        await asyncio.sleep(LOADING_SECONDS)
        self.state["status"] = "READY"
        self.control.send(Ready())

    async def listen_to_supervisor(self) -> None:
        async for message in self.control:
            match message:
                case EngineAddress():
                    self.loading = asyncio.create_task(self.load(message))
                case SetupFailed(error):
                    self.state |= {"status": "SETUP_FAILED", "error": error}
                case Drain(seconds):
                    self.state |= {"status": "DRAINING", "seconds": seconds}
                    await asyncio.sleep(DRAINING_SECONDS)
                    self.control.send(Drained())

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readline()).split()[1]
        if path == b"/hang":
            time.sleep(1000)  # noqa: ASYNC251 - as a front does that hangs
        if path == b"/fail":
            self.control.send(SetupFailed(str(TritonTokenizerError(reason="it is broken"))))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + json.dumps(self.state).encode())
        await writer.drain()
        writer.close()


async def wait_open(path: str) -> None:
    while True:
        try:
            _, writer = await asyncio.open_unix_connection(path)
        except OSError:
            await asyncio.sleep(0.01)
        else:
            writer.close()
            return


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--control", required=True)
    parser.add_argument("--listen-fd", type=int, required=True)
    parser.add_argument("--heartbeat-fd", type=int, required=True)
    parser.add_argument("--restarts", type=int, required=True)
    options = parser.parse_args()
    Heartbeat(options.heartbeat_fd).beat(asyncio.get_running_loop())
    control = await Connection.connect(options.control)
    if REFUSES:
        control.send(Refused(str(SettingInvalid(setting="STUB", value=None, reason="it is needed"))))
        async for _ in control:
            pass
        return
    if IGNORES_SIGTERM:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    front = StubFront(control)
    await asyncio.start_server(front.answer, sock=socket.socket(fileno=options.listen_fd))
    await front.listen_to_supervisor()


if __name__ == "__main__":
    asyncio.run(main())
