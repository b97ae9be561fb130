"""Tokenises prompts outside the event loop: those that arrive while others are being cut are cut next,
together.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from shared.errors import CogTritonError, PreparationTimedOut

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.text.tokenizer import Tokenizer

_AT_ONCE = 1 << 8  # characters: quicker than waking another thread
_ALONE = 1 << 12  # characters: nobody should wait for a longer one
_ALONE_THREADS = 2
_MAX_TOGETHER = 32  # the first of a burst need not wait for the last
_SECONDS = 30


class _Text(NamedTuple):
    text: str
    add_special_tokens: bool
    tokens: asyncio.Future[list[int]]


class Tokenising:
    """The work of one tokenizer. For one event loop."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._waiting: list[_Text] = []
        self._work: asyncio.Task[None] | None = None
        self._together = ThreadPoolExecutor(1, thread_name_prefix="tokenise")
        self._alone = ThreadPoolExecutor(_ALONE_THREADS, thread_name_prefix="tokenise-long")

    async def tokens_of(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """As `Tokenizer.encode`. Raises PreparationTimedOut and TritonTokenizerError."""
        if len(text) <= _AT_ONCE:
            return self._tokenizer.encode(text, add_special_tokens=add_special_tokens)
        loop = asyncio.get_running_loop()
        one = _Text(text, add_special_tokens, loop.create_future())
        if len(text) > _ALONE:
            work = loop.run_in_executor(self._alone, self._cut, [one])
            try:
                (found,) = await asyncio.wait_for(work, _SECONDS)
            except TimeoutError:
                raise PreparationTimedOut(seconds=_SECONDS) from None
            if isinstance(found, CogTritonError):
                raise found
            return found
        self._waiting.append(one)
        if self._work is None:
            self._work = asyncio.create_task(self._cut_waiting())
        return await one.tokens

    def close(self) -> None:
        """Release what it holds; those who wait are cancelled."""
        self._together.shutdown(wait=False, cancel_futures=True)
        self._alone.shutdown(wait=False, cancel_futures=True)

    async def _cut_waiting(self) -> None:
        loop = asyncio.get_running_loop()
        taken: list[_Text] = []
        try:
            while self._waiting:
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
            return self._tokenizer.encode_all(texts, add_special_tokens=special)
        except CogTritonError as error:
            if len(texts) == 1:
                return [error]
        return [found for text in texts for found in self._cut_alike([text], special)]
