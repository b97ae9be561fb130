"""One build as the work of a prediction."""

from __future__ import annotations

import asyncio
import codecs
import json
import os
import sys
from typing import TYPE_CHECKING, Any, Self

from builder.convert import failure
from runner.front.cog.prediction import Log
from runner.front.outbound import put_file
from shared.errors import GenericError, from_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from runner.front.addresses import Addresses
    from runner.front.cog.prediction import Chunk
    from runner.prediction.admission import Ticket

_END_SECONDS = 30
_MAX_LINE = 1 << 20  # bytes of what a build tells in one go


class BuildWork:
    """What `Prediction` follows: the build's messages, and at the end where engine.tar is and what it is."""

    def __init__(
        self,
        config: str,
        token: str | None,
        archive: Path,
        ticket: Ticket,
        address: str,
        upload: tuple[Addresses, str, str] | None,
        on_built: Callable[[str], None],
    ) -> None:
        """`address`: where `archive` can be fetched; `upload`: where it is sent instead, and who
        named that. `on_built` gets its SHA-256 once it exists.
        """
        self.finish_reason: str | None = None
        self._config = config
        self._token = token
        self._archive = archive
        self._ticket = ticket
        self._address = address
        self._upload = upload
        self._on_built = on_built
        self._told: dict[str, object] = {}
        self._task: asyncio.Task[None] | None = None
        self._said: asyncio.Queue[Log | None] = asyncio.Queue()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk | Log:
        """End when the build has ended. Raises AddressRefused, UploadFailed and a build's errors (E3xxx)."""
        if self._task is None and self.finish_reason is None:
            self._task = asyncio.create_task(self._run())
            self._task.add_done_callback(lambda _: self._said.put_nowait(None))
        if self._task is None:
            raise StopAsyncIteration
        try:
            log = await self._said.get()
        except asyncio.CancelledError:  # the server is ending
            self.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            raise
        if log is not None:
            return log
        if self.finish_reason is None:
            self._task.result()
        raise StopAsyncIteration

    def told(self) -> dict[str, object]:
        """While it runs `progress`: a `step`, and how much of it is `done`; then `output` and `file`."""
        return self._told

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
        try:
            self._told = await self._built()
        except BaseException:
            self._told = {}
            raise

    async def _built(self) -> dict[str, object]:
        """What is reported at the end."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "cli.builder_server.process", str(self._archive)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "HF_TOKEN": self._token} if self._token else None,
            start_new_session=True,
            limit=_MAX_LINE,
        )
        try:
            # Not an argument: it may be long, and hold a signed address, which other users could see.
            assert process.stdin is not None
            process.stdin.write(self._config.encode())
            process.stdin.close()
            _, last = await asyncio.gather(self._pass_on(process), self._listen(process))
            status = await process.wait()
        except asyncio.CancelledError:
            await _end(process)
            raise
        if status != 0:
            killed = failure("build", status, ()) if status < 0 else GenericError()
            raise from_text(last.get("error", "")) or killed
        self._on_built(last["sha256"])
        output = self._address
        if self._upload is not None:
            output = await put_file(*self._upload, self._archive, lambda sent: self._uploaded(sent, last))
        return {"output": output, "file": {"path": str(self._archive), **last}}

    def _uploaded(self, sent: int, file: dict[str, Any]) -> None:
        self._told = {"progress": {"step": "upload", "done": sent, "total": file["size"]}}

    async def _pass_on(self, process: asyncio.subprocess.Process) -> None:
        """What the build says, to our own log and to the client."""
        assert process.stderr is not None
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while data := await process.stderr.read(1 << 16):
            sys.stderr.buffer.write(data)
            sys.stderr.buffer.flush()
            if said := decoder.decode(data):
                self._said.put_nowait(Log(said))

    async def _listen(self, process: asyncio.subprocess.Process) -> dict[str, Any]:
        """Its last message; before that, how far along it is."""
        assert process.stdout is not None
        last: dict[str, Any] = {}
        async for line in process.stdout:
            last = json.loads(line)
            if "step" in last:
                self._told = {"progress": last}
        return last


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
        try:
            await asyncio.wait_for(process.communicate(), _END_SECONDS)
        except TimeoutError:
            process.kill()
            await process.communicate()
