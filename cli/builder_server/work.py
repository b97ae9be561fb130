"""One build as the work of a prediction."""

from __future__ import annotations

import asyncio
import codecs
import os
import sys
from typing import TYPE_CHECKING, Self

from runner.front.cog.prediction import Log
from runner.front.outbound import put_file
from shared.errors import GenericError, from_text

if TYPE_CHECKING:
    from pathlib import Path

    from runner.front.addresses import Addresses
    from runner.front.cog.prediction import Chunk
    from runner.prediction.admission import Ticket

_END_SECONDS = 30


class BuildWork:
    """What `Prediction` follows: what the build says, and the address of engine.tar at the end."""

    def __init__(
        self,
        config: str,
        token: str | None,
        archive: Path,
        ticket: Ticket,
        address: str,
        upload: tuple[Addresses, str] | None,
    ) -> None:
        """`address`: where `archive` can be had; `upload`: where it is sent instead."""
        self.output: str | None = None
        self.finish_reason: str | None = None
        self._config = config
        self._token = token
        self._archive = archive
        self._ticket = ticket
        self._address = address
        self._upload = upload
        self._task: asyncio.Task[None] | None = None
        self._said: asyncio.Queue[Log | None] = asyncio.Queue()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk | Log:
        """End when the build has ended. Raises E1326, E1330 and E3xxx."""
        if self._task is None and self.finish_reason is None:
            self._task = asyncio.create_task(self._run())
            self._task.add_done_callback(lambda _: self._said.put_nowait(None))
        if self._task is None:
            raise StopAsyncIteration
        try:
            log = await self._said.get()
        except asyncio.CancelledError:  # the server ends
            self.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            raise
        if log is not None:
            return log
        if self.finish_reason is None:
            self._task.result()
        raise StopAsyncIteration

    def facts(self) -> dict[str, object]:
        """None."""
        return {}

    def results(self) -> dict[str, object]:
        """None."""
        return {}

    def cancel(self) -> None:
        """End the build; what it made is removed."""
        self.finish_reason = "cancelled"
        if self._task is not None:
            self._task.cancel()

    def close(self) -> None:
        """Let the next one in."""
        self._ticket.leave()

    async def _run(self) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "HF_TOKEN"}
        if self._token:
            environment["HF_TOKEN"] = self._token
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "cli.builder_server.process", self._config, str(self._archive)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        try:
            _, told = await asyncio.gather(self._pass_on(process), _all_of(process.stdout))
            status = await process.wait()
        except asyncio.CancelledError:
            await _end(process)
            raise
        if status != 0:
            raise from_text(told) or GenericError()
        if self._upload is None:
            self.output = self._address
        else:
            self.output = await put_file(*self._upload, self._archive)

    async def _pass_on(self, process: asyncio.subprocess.Process) -> None:
        """What the build says, to our own log and to the client."""
        assert process.stderr is not None
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while data := await process.stderr.read(1 << 16):
            sys.stderr.buffer.write(data)
            sys.stderr.buffer.flush()
            if said := decoder.decode(data):
                self._said.put_nowait(Log(said))


async def _all_of(stream: asyncio.StreamReader | None) -> str:
    return "" if stream is None else (await stream.read()).decode(errors="replace")


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
        try:
            await asyncio.wait_for(process.communicate(), _END_SECONDS)
        except TimeoutError:
            process.kill()
            await process.communicate()
