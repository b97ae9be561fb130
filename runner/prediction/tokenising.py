"""Turns prompts into tokens outside the event loop, fairly among those who send them.

Short texts that arrive while others are being cut are cut next, together. A thread that cuts cannot be
stopped: so texts wait here, where who leaves takes his along, and not in the threads' own queues.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from runner.fair_queue import FairQueue, Full
from shared.errors import CogTritonError, Overloaded, PreparationTimedOut

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from runner.text.tokenizer import Tokenizer

_Result = TypeVar("_Result")

_AT_ONCE = 1 << 8  # characters: quicker than waking another thread
_ALONE = 1 << 12  # characters: nobody should wait for a longer one
_LONG = 1 << 17  # characters: these take seconds, and may not have all threads
_MAX_TOGETHER = 32  # the first of a burst need not wait for the last
_TOGETHER_AT_ONCE = 2 * _MAX_TOGETHER * _ALONE
_MAX_WAITING = 4096
_MAX_WAITING_CHARACTERS = 1 << 27
_SECONDS = 30


class _Text(NamedTuple):
    text: str
    add_special_tokens: bool
    tokens: asyncio.Future[list[int]]


class _Threads:
    """Some threads, and those who wait for one."""

    def __init__(self, threads: int, name: str) -> None:
        self.queue = FairQueue(threads, most=_MAX_WAITING, room=_MAX_WAITING_CHARACTERS)
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)

    async def run(self, sender: str, size: int, work: Callable[[], _Result]) -> _Result:
        """What `work` returns. Raises PreparationTimedOut and Overloaded."""
        try:
            async with asyncio.timeout(_SECONDS):
                ended = await _turn(self.queue, sender, size, cost=1)
                running = asyncio.get_running_loop().run_in_executor(self._executor, work)
                # Not when nobody waits for it any more: the thread goes on.
                running.add_done_callback(lambda _: ended())
                return await asyncio.shield(running)
        except TimeoutError:
            raise PreparationTimedOut(seconds=_SECONDS) from None

    def close(self) -> None:
        """Release them; those who wait are cancelled."""
        self.queue.close(asyncio.CancelledError)
        self._executor.shutdown(wait=False, cancel_futures=True)


class Tokenising:
    """The work of one tokenizer. For one event loop."""

    def __init__(self, tokenizer: Tokenizer, longest: int) -> None:
        """`longest`: the most tokens that are of use."""
        self._tokenizer = tokenizer
        self._longest = longest
        self._waiting: list[_Text] = []
        self._work: asyncio.Task[None] | None = None
        self._together = ThreadPoolExecutor(1, thread_name_prefix="tokenise")
        self._queue = FairQueue(_TOGETHER_AT_ONCE, most=_MAX_WAITING, room=_MAX_WAITING_CHARACTERS)
        self._alone = _Threads(2, "tokenise-alone")
        self._long = _Threads(1, "tokenise-long")

    async def tokens_of(self, text: str, sender: str = "", *, add_special_tokens: bool) -> list[int]:
        """As `Tokenizer.encode`. `sender`: whose text it is, for a fair share of the threads.

        Raises PreparationTimedOut, Overloaded, PromptTooLong and TritonTokenizerError.
        """
        if len(text) <= _AT_ONCE:
            return self._tokenizer.encode(text, add_special_tokens=add_special_tokens)
        one = _Text(text, add_special_tokens, asyncio.get_running_loop().create_future())
        if len(text) > _ALONE:
            (found,) = await self._threads(len(text)).run(sender, len(text), lambda: self._cut([one]))
            if isinstance(found, CogTritonError):
                raise found
            return found
        ended = await _turn(self._queue, sender, len(text))
        try:
            self._waiting.append(one)
            if self._work is None:
                self._work = asyncio.create_task(self._cut_waiting())
            return await one.tokens
        finally:
            ended()

    async def text_of(self, tokens: Sequence[int], sender: str = "") -> str:
        """As `Tokenizer.decode`. Raises PreparationTimedOut and Overloaded."""
        threads = self._threads(len(tokens))
        return await threads.run(sender, len(tokens), lambda: self._tokenizer.decode(tokens))

    def close(self) -> None:
        """Release what it holds; those who wait are cancelled."""
        self._queue.close(asyncio.CancelledError)
        self._together.shutdown(wait=False, cancel_futures=True)
        self._alone.close()
        self._long.close()

    def _threads(self, size: int) -> _Threads:
        return self._alone if size <= _LONG else self._long

    async def _cut_waiting(self) -> None:
        loop = asyncio.get_running_loop()
        taken: list[_Text] = []
        try:
            while self._waiting:
                # Some have left meanwhile.
                self._waiting = [one for one in self._waiting if not one.tokens.done()]
                taken = self._waiting[:_MAX_TOGETHER]
                del self._waiting[:_MAX_TOGETHER]
                found = await loop.run_in_executor(self._together, self._cut, taken)
                for one, tokens in zip(taken, found, strict=True):
                    if one.tokens.done():
                        continue  # its client has left
                    if isinstance(tokens, CogTritonError):
                        one.tokens.set_exception(tokens)
                    else:
                        one.tokens.set_result(tokens)
        finally:
            self._work = None
            for one in (*taken, *self._waiting):
                one.tokens.cancel()

    def _cut(self, texts: Sequence[_Text]) -> list[list[int] | CogTritonError]:
        """In a thread: the tokens of each, or why it has none."""
        found: list[list[int] | CogTritonError] = [[]] * len(texts)
        for special in (True, False):
            places = [place for place, one in enumerate(texts) if one.add_special_tokens is special]
            for place, tokens in zip(
                places, self._cut_alike([texts[place].text for place in places], special), strict=True
            ):
                found[place] = tokens
        return found

    def _cut_alike(self, texts: list[str], special: bool) -> Sequence[list[int] | CogTritonError]:
        try:
            return self._tokenizer.encode_all(texts, self._longest, add_special_tokens=special)
        except CogTritonError as error:
            if len(texts) == 1:
                return [error]
        return [found for text in texts for found in self._cut_alike([text], special)]


async def _turn(queue: FairQueue, sender: str, size: int, cost: int | None = None) -> Callable[[], None]:
    """As `FairQueue.enter`. Raises Overloaded."""
    try:
        return await queue.enter(sender, size, cost)
    except Full as full:
        what = "prompts are waiting to become tokens"
        if full.in_bytes:
            what = "characters of prompts may wait to become tokens, and your share is taken"
        raise Overloaded(limit=full.limit, what=what, fix="add runners") from None
