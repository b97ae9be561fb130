"""A model's chat template, run in a process of its own with limits on time and memory.

A template is a program that came with a model: it may run for ever, or fill the memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from runner.fair_queue import FairQueue, Full
from runner.limited_process import LimitedProcess, NotStarted
from runner.text.render_process import ERROR, TEXT
from shared.errors import (
    MessagesInvalid,
    Overloaded,
    ShuttingDown,
    TritonTokenizerError,
    from_text,
)

if TYPE_CHECKING:
    from pathlib import Path

_RENDER_SECONDS = 2.0
_MAX_WAITING = 4096
_MAX_WAITING_BYTES = 1 << 27
_AT_ONCE = 1 << 18  # bytes in the pipe: it is never empty, and nobody waits long behind them


class ChatRenderer:
    """The template of one model. For one event loop."""

    def __init__(self, directory: Path, seconds: float) -> None:
        self._seconds = seconds
        self._process = LimitedProcess("runner.text.render_process", str(directory), seconds=seconds)
        self._queue = FairQueue(_AT_ONCE, most=_MAX_WAITING, room=_MAX_WAITING_BYTES)

    @classmethod
    async def load(cls, directory: Path, seconds: float = _RENDER_SECONDS) -> Self | None:
        """Start it, with the tokenizer's files in `directory`; None if the model has no template.

        A conversation may take that many seconds. Raises TritonTokenizerError.
        """
        renderer, hello = cls(directory, seconds), b""
        try:
            hello = await renderer._process.start()
        except NotStarted as problem:
            raise _not_loaded(problem) from None
        finally:
            if hello != TEXT:
                await renderer.close()
        if hello[:1] == ERROR:
            reason = "its chat template cannot be loaded"
            raise from_text(hello[1:].decode()) or TritonTokenizerError(reason=reason)
        return renderer if hello == TEXT else None

    async def render(self, messages: bytes, arguments: bytes = b"{}", sender: str = "") -> str:
        """The prompt that asks for the next turn; both are JSON. `sender`: whose it is, for a fair share of
        the process.

        Raises MessagesInvalid for messages that the template refuses, or for which it needs too much time or
        memory, Overloaded when too many others wait, ShuttingDown when it is closed meanwhile,
        TritonTokenizerError when no process can be started.
        """
        try:
            ended = await self._queue.enter(sender, len(messages) + len(arguments))
        except Full as full:
            what = "conversations are waiting for the chat template"
            if full.in_bytes:
                what = "bytes of conversations may wait for the chat template, and your share is taken"
            raise Overloaded(limit=full.limit, what=what, fix="add runners") from None
        try:
            answer = await self._process.ask(
                ended, b'{"messages":', messages, b',"arguments":', arguments, b"}"
            )
        except (TimeoutError, EOFError) as problem:
            late = isinstance(problem, TimeoutError)
            what = f"more than {self._seconds:g} s" if late else "too much memory"
            raise MessagesInvalid(reason=f"the model's chat template needs {what} for them") from None
        except NotStarted as problem:
            raise _not_loaded(problem) from None
        text = answer[1:].decode(errors="surrogatepass")
        if answer[:1] == ERROR:
            raise from_text(text) or MessagesInvalid(reason="the chat template failed")
        return text

    async def close(self) -> None:
        """End the process; those who wait get an error."""
        self._queue.close(ShuttingDown)
        await self._process.close(ShuttingDown)


def _not_loaded(problem: NotStarted) -> TritonTokenizerError:
    return TritonTokenizerError(reason=f"its chat template cannot be loaded: {problem}")
