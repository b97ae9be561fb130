"""A model's chat template, run in a process of its own with limits on time and memory.

A template is a program that came with a model: it may run for ever, or fill the memory.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import deque
from typing import TYPE_CHECKING, Any, Self

from runner.text.render_process import LENGTH, frame
from shared.errors import (
    CogTritonError,
    MessagesInvalid,
    Overloaded,
    RequestInvalid,
    ShuttingDown,
    TritonTokenizerError,
    from_text,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_RENDER_SECONDS = 2.0
_START_SECONDS = 20.0
_MAX_WAITING = 4096


class ChatRenderer:
    """The template of one model. For one event loop."""

    def __init__(self, directory: Path, seconds: float) -> None:
        self._directory = directory
        self._seconds = seconds
        self._waiting: deque[tuple[bytes, asyncio.Future[dict[str, Any]]]] = deque()
        self._some = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._listens = False
        """Whether the process has started; what arrives earlier is sent once it has."""
        self._reader: asyncio.Task[None] | None = None
        self.has_template = False

    @classmethod
    async def load(cls, directory: Path, seconds: float = _RENDER_SECONDS) -> Self | None:
        """Start it, with the tokenizer's files in `directory`; None if the model has no template.

        A conversation may take that many seconds. Raises TritonTokenizerError.
        """
        renderer = cls(directory, seconds)
        try:
            await renderer._start()
        finally:
            if not renderer.has_template:
                await renderer.close()
        if not renderer.has_template:
            return None
        renderer._reader = asyncio.create_task(renderer._read())
        return renderer

    async def render(
        self, messages: Sequence[Mapping[str, Any]], arguments: Mapping[str, Any] | None = None
    ) -> str:
        """The prompt that asks for the next turn.

        Raises MessagesInvalid for messages that the template refuses, or for which it needs too much time or
        memory, RequestInvalid for arguments that are nested too deeply, Overloaded when too many others wait,
        ShuttingDown when it is closed meanwhile.
        """
        if len(self._waiting) >= _MAX_WAITING:
            what = "conversations are waiting for the chat template"
            raise Overloaded(limit=_MAX_WAITING, what=what, fix="add runners")
        try:
            body = frame({"messages": messages, "arguments": arguments or {}})
        except RecursionError:
            reason = "chat_template_kwargs is nested too deeply"
            raise RequestInvalid(parameter="chat_template_kwargs", reason=reason) from None
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append((body, answer))
        self._some.set()
        self._send(body)
        found = await answer
        if "text" in found:
            return str(found["text"])
        raise from_text(found["error"]) or MessagesInvalid(reason="the chat template failed")

    async def close(self) -> None:
        """End the process; those who wait get an error."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        await self._end_process()
        while self._waiting:
            self._answer({"error": str(ShuttingDown())})

    async def _start(self) -> None:
        """Raises TritonTokenizerError."""
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "runner.text.render_process",
                str(self._directory),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={"PYTHONPATH": ":".join(filter(None, sys.path)), "PYTHONSAFEPATH": "1"},
                # Ctrl-C is for this process, which then ends it. uvloop has no `process_group`.
                start_new_session=True,
            )
        except OSError as problem:
            reason = f"no process for its chat template can be started: {problem.strerror}"
            raise TritonTokenizerError(reason=reason) from None
        try:
            hello = await asyncio.wait_for(self._next(), _START_SECONDS)
        except (TimeoutError, EOFError):
            reason = f"its chat template was not loaded within {_START_SECONDS:g} s, or filled the memory"
            raise TritonTokenizerError(reason=reason) from None
        if error := hello.get("error"):
            raise from_text(error) or TritonTokenizerError(reason="its chat template cannot be loaded")
        self.has_template = bool(hello["found"])
        self._listens = True

    async def _read(self) -> None:
        """Hand each answer to the request that waits for it; a process that takes too long is replaced."""
        while True:
            while not self._waiting:
                self._some.clear()
                await self._some.wait()
            if not self._listens:  # it could not be started for those before
                await self._start_again()
                continue
            try:
                found = await asyncio.wait_for(self._next(), self._seconds)
            except (TimeoutError, EOFError) as ended:
                late = isinstance(ended, TimeoutError)
                what = f"more than {self._seconds:g} s" if late else "too much memory"
                reason = f"the model's chat template needs {what} for them"
                self._answer({"error": str(MessagesInvalid(reason=reason))})
                await self._start_again()
            else:
                self._answer(found)

    async def _start_again(self) -> None:
        await self._end_process()
        try:
            await self._start()
        except CogTritonError as error:
            await self._end_process()
            while self._waiting:
                self._answer({"error": str(error)})
        for body, _ in self._waiting:
            self._send(body)

    async def _end_process(self) -> None:
        process, self._process, self._listens = self._process, None, False
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    async def _next(self) -> dict[str, Any]:
        """The next answer. Raises EOFError when the process has ended."""
        if self._process is None or self._process.stdout is None:
            raise EOFError
        source = self._process.stdout
        (length,) = LENGTH.unpack(await source.readexactly(LENGTH.size))
        answer: dict[str, Any] = json.loads(await source.readexactly(length))
        return answer

    def _send(self, body: bytes) -> None:
        if self._listens and self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(body)

    def _answer(self, found: dict[str, Any]) -> None:
        _, answer = self._waiting.popleft()
        if not answer.done():
            answer.set_result(found)
