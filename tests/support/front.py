"""A front on a port of its own in this process, with the engine of tests/support/fake_engine_client.py.

Text of the fake: word i is 95 + i % 50; a prompt with the word 3 fails half-way, one with 4 hangs.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import replace

import uvloop

from runner.front.front import Front
from runner.front.protocol import Bounds, bounded
from runner.front.server import acceptors, make_server, tls_files
from runner.settings import Settings
from shared.cog.server import listen
from tests.support.fake_engine_client import EVERYTHING, FakeEngineClient
from tests.support.words import word_tokenizer

EVENTS = {"accept": "text/event-stream"}
ASYNC = {"prefer": "respond-async"}


def words(count: int) -> str:
    return " ".join(str(95 + number % 50) for number in range(count))


def write_engine(directory, chat_template: str | None = None):
    """An engine directory with the tokenizer that counts."""
    (directory / "tokenizer").mkdir(parents=True)
    (directory / "config.json").write_text('{"engine": "mock"}')
    word_tokenizer().save(str(directory / "tokenizer/tokenizer.json"))
    if chat_template is not None:
        (directory / "tokenizer/chat_template.jinja").write_text(chat_template)
    return directory


class RunningFront:
    def __init__(self, front, client, server, port, loop):
        self.front, self.client, self.server, self.port, self.loop = front, client, server, port, loop
        self.url = f"http{'s' if server.config.is_ssl else ''}://127.0.0.1:{port}"


@asynccontextmanager
async def serving(
    directory,
    *,
    step_seconds=0.001,
    bounds=None,
    loaded=True,
    declaration=EVERYTHING,
    names_checked=False,
    **environment,
):
    """The front, in this event loop. `names_checked`: it knows that it listens on loopback."""
    settings = Settings.from_environment(environment)
    listener = listen("127.0.0.1", 0)
    front = Front(settings, listener=listener if names_checked else None)
    client = FakeEngineClient(step_seconds=step_seconds, declaration=declaration)
    server = make_server(front.app, settings.max_connections, 1, tls_files(settings))
    if bounds:
        server.config.http = bounded(replace(Bounds(settings.max_connections), **bounds), front.app.count)

    async def connect():
        return client

    server.capture_signals = nullcontext  # type: ignore[method-assign,assignment] # pytest has its own
    task = asyncio.create_task(server.serve(sockets=acceptors(listener)))
    port = listener.getsockname()[1]
    try:
        while not server.started:  # noqa: ASYNC110 - uvicorn tells nobody
            await asyncio.sleep(0.005)
        if loaded:
            await front.load(directory, connect)
        yield RunningFront(front, client, server, port, asyncio.get_running_loop())
    finally:
        server.should_exit = server.force_exit = True
        await task
        await front.close()


@contextmanager
def running(directory, **options):
    """The same in a thread of its own, for clients that block."""
    ready, done = threading.Event(), []
    box = {}

    async def main():
        try:
            async with serving(directory, **options) as server:
                box["server"] = server
                box["stop"] = asyncio.Event()
                ready.set()
                await box["stop"].wait()
        except BaseException as error:
            done.append(error)
            ready.set()
            raise

    thread = threading.Thread(target=lambda: uvloop.run(main()), daemon=True)
    thread.start()
    ready.wait(30)
    if done:
        raise done[0]
    try:
        yield box["server"]
    finally:
        box["server"].loop.call_soon_threadsafe(box["stop"].set)
        thread.join(30)
        assert not thread.is_alive()


def wait_ended(client, prediction_id: str) -> dict:
    """What the prediction is in the end."""
    deadline = time.monotonic() + 20
    while True:
        view = client.get(f"/predictions/{prediction_id}").json()
        if view["status"] not in ("starting", "processing"):
            return view
        assert time.monotonic() < deadline
        time.sleep(0.01)
