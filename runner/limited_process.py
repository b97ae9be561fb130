"""A process of ours with limits on time and memory, for what a sender could make endless or huge.

It is `python -m MODULE ARGUMENT...`: it reads frames on its standard input and answers each on its standard
output, in order. A frame is `u32 length` (little-endian) and that many bytes. The first answer has no
question: it says that the process has started.
"""

from __future__ import annotations

import asyncio
import resource
import struct
import sys
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from runner.lifecycle.lifeline import end_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import BinaryIO

_LENGTH = struct.Struct("<I")
_MAX_MEMORY = 1 << 30
_START_SECONDS = 20.0
_READ_AT_ONCE = 1 << 20
_MAPPED_BYTES = 1 << 17
"""From this size on, glibc hands back at once what is freed; else the size would grow with those it meets."""


class NotStarted(Exception):
    """The process cannot be started."""


class _Question(NamedTuple):
    parts: Sequence[bytes]
    answer: asyncio.Future[bytes]
    ended: Callable[[], object]


class LimitedProcess:
    """Asks the process; one that dies or takes too long is replaced by another. For one event loop."""

    def __init__(self, module: str, *arguments: str, seconds: float) -> None:
        """An answer may take so many seconds."""
        self._command = (sys.executable, "-m", module, *arguments)
        self._seconds = seconds
        self._asked: deque[_Question] = deque()
        self._some = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._listens = False
        """Whether the process has started; what is asked earlier is sent once it has."""
        self._reader: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The process that runs."""
        return None if self._process is None else self._process.pid

    async def start(self) -> bytes:
        """Start it; return its first answer. Raises NotStarted."""
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=_READ_AT_ONCE,
                env={
                    "PYTHONPATH": ":".join(filter(None, sys.path)),
                    "PYTHONSAFEPATH": "1",
                    "MALLOC_MMAP_THRESHOLD_": str(_MAPPED_BYTES),
                },
                # Ctrl-C is for this process, which then ends it. uvloop has no `process_group`.
                start_new_session=True,
            )
        except OSError as problem:
            raise NotStarted(f"no process can be started: {problem.strerror}") from None
        try:
            hello = await asyncio.wait_for(self._next(), _START_SECONDS)
        except (TimeoutError, EOFError):
            reason = f"its process did not start within {_START_SECONDS:g} s, or filled the memory"
            raise NotStarted(reason) from None
        self._listens = True
        return hello

    async def ask(self, ended: Callable[[], object], *parts: bytes) -> bytes:
        """Its answer to these together. `ended` is called when it has done this, even for nobody any more.

        Raises TimeoutError, EOFError if the process has died of it, NotStarted.
        """
        if self._reader is None:
            self._reader = asyncio.create_task(self._read())
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._asked.append(_Question(parts, answer, ended))
        self._some.set()
        self._send(parts)
        return await answer

    async def close(self, error: Callable[[], Exception]) -> None:
        """End the process; those who wait get an error."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        await self._end_process()
        while self._asked:
            self._fail(error())

    async def _read(self) -> None:
        """Hand each answer to the request that waits for it; a process that takes too long is replaced."""
        while True:
            while not self._asked:
                self._some.clear()
                await self._some.wait()
            if not self._listens:  # nobody needed it, or it could not be started for those before
                await self._start_again()
                continue
            try:
                found = await asyncio.wait_for(self._next(), self._seconds)
            except (TimeoutError, EOFError) as problem:
                self._fail(problem)
                await self._start_again()
            else:
                question = self._asked.popleft()
                if not question.answer.done():
                    question.answer.set_result(found)
                question.ended()

    async def _start_again(self) -> None:
        await self._end_process()
        for question in [one for one in self._asked if one.answer.done()]:  # they have left
            self._asked.remove(question)
            question.ended()
        try:
            await self.start()
        except NotStarted as problem:
            await self._end_process()
            while self._asked:
                self._fail(NotStarted(str(problem)))
        for question in self._asked:
            self._send(question.parts)

    async def _end_process(self) -> None:
        process, self._process, self._listens = self._process, None, False
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    async def _next(self) -> bytes:
        """The next answer. Raises EOFError when the process has ended."""
        if self._process is None or self._process.stdout is None:
            raise EOFError
        source = self._process.stdout
        (length,) = _LENGTH.unpack(await source.readexactly(_LENGTH.size))
        return await source.readexactly(length)

    def _send(self, parts: Sequence[bytes]) -> None:
        if self._listens and self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(b"".join((_LENGTH.pack(sum(map(len, parts))), *parts)))

    def _fail(self, error: Exception) -> None:
        question = self._asked.popleft()
        if not question.answer.done():
            question.answer.set_exception(error)
        question.ended()


def begin() -> None:
    """In the process, before it imports much: limit its memory, and end it with the one that asks.

    What it works on may never end, so that it would not see the end of its questions.
    """
    end_with_parent()
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))


def questions() -> Iterator[bytes]:
    """In the process: what it is asked, until nobody asks any more."""
    source = sys.stdin.buffer
    while head := source.read(_LENGTH.size):
        yield source.read(*_LENGTH.unpack(head))


def tell(*parts: bytes) -> None:
    """In the process: an answer, in parts."""
    sink: BinaryIO = sys.stdout.buffer
    sink.writelines((_LENGTH.pack(sum(map(len, parts))), *parts))
    sink.flush()
