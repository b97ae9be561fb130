"""The texts that one request asked for, sent as they arrive or all together."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from runner.front.openai.answers import COMPLETION, DONE, Events, Usage
from runner.front.openai.log_probs import ChatLogProbs, CompletionLogProbs, joined
from runner.prediction.admission import Together
from shared.errors import EngineInternalError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from runner.front.http import Request
    from runner.front.openai.answers import Answer
    from runner.front.openai.log_probs import LogProbsTeller
    from runner.prediction.ask import Ask
    from runner.prediction.generation import TextGeneration
    from runner.prediction.predictor import Predictor

_Result = TypeVar("_Result")
_REFUSED_WITHIN = 0.1  # seconds; the engine checks a request when it arrives, whatever it is doing


@dataclass(slots=True)
class Texts:
    """`asks` are generated side by side; each run of `per_prompt` of them shares a prompt.

    Its tokens are made once: the event loop is everybody's.
    """

    predictor: Predictor
    answer: Answer
    asks: Sequence[Ask]
    per_prompt: int
    request: Request
    _prompts: dict[int, _Once[Sequence[int]]] = field(default_factory=dict)
    _generations: dict[int, TextGeneration] = field(default_factory=dict)
    _together: Together = field(init=False)
    _beginning: asyncio.Lock = field(default_factory=asyncio.Lock)
    _begun: bool = False
    _all_sent: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether the engine has all of them."""

    def __post_init__(self) -> None:
        self._together = Together(self.per_prompt)

    async def whole(self) -> bytes:
        """The body with all of them. Raises what `Predictor.start` and its texts do."""
        work = [self._choice(index, ask) for index, ask in enumerate(self.asks)]
        choices = await self._side_by_side(work)
        return self.answer.body(choices, self._usage())

    async def stream(self, *, include_usage: bool, in_each: bool = False) -> None:
        """Send their events; the first begins the answer. Raises what `Predictor.start` and its texts do.

        `in_each`: every event has the usage of its text so far.
        """
        events = Events(self.answer, include_usage=include_usage)
        work = [self._stream(events, index, ask, in_each=in_each) for index, ask in enumerate(self.asks)]
        beginning = asyncio.create_task(self._begin_early())
        try:
            await self._side_by_side(work)
        finally:
            beginning.cancel()
            await asyncio.wait([beginning])
        await self.request.send((events.usage(self._usage()) if include_usage else b"") + DONE)
        await self.request.end()

    async def _choice(self, index: int, ask: Ask) -> dict[str, Any]:
        generation = await self._start(index, ask)
        try:
            teller = self._teller(ask)
            texts, told = [], []
            async for piece in generation:
                texts.append(piece.text)
                if teller is not None:
                    told.append(teller.tell(piece.tokens, piece.log_probs))
            log_probs = joined(told) if told else None
            return self.answer.choice(index, "".join(texts), log_probs, _finish_reason(generation))
        finally:
            generation.close()

    async def _stream(self, events: Events, index: int, ask: Ask, *, in_each: bool) -> None:
        generation = await self._start(index, ask)
        try:
            choice = events.choice(index)
            teller = self._teller(ask)
            last, told_last = "", None
            async for piece in generation:
                told = None if teller is None else teller.tell(piece.tokens, piece.log_probs)
                if generation.is_complete:
                    last, told_last = piece.text, told
                    continue
                if not self._begun:
                    await self._begin()
                await self.request.send(
                    choice.step(piece.text, told, _so_far(generation) if in_each else None)
                )
            usage = _so_far(generation) if in_each else None
            ended = choice.end(_finish_reason(generation), last, told_last, usage)
        finally:
            generation.close()
        if not self._begun:
            await self._begin()
        await self.request.send(ended)

    async def _start(self, index: int, ask: Ask) -> TextGeneration:
        prompt = None
        if self.per_prompt > 1:
            make = partial(self.predictor.prompt_of, ask, self.answer.id, self.request.sender)
            prompt = self._prompts.setdefault(index // self.per_prompt, _Once(make))
        generation = await self.predictor.start(
            ask,
            key=self.request.key,
            sender=self.request.sender,
            prediction_id=self.answer.id,
            prompt=prompt,
            together=self._together,
            place=self.request.take_place(),
        )
        self._generations[index] = generation
        if len(self._generations) == len(self.asks):
            self._all_sent.set()
        return generation

    async def _side_by_side(self, work: Sequence[Coroutine[Any, Any, _Result]]) -> list[_Result]:
        try:
            return await _side_by_side(work)
        finally:
            for prompt in self._prompts.values():
                prompt.close()

    async def _begin_early(self) -> None:
        """Begin before there is any text, once the engine has had time to refuse what it was sent."""
        if any(ask.structured_output is not None or ask.lora is not None for ask in self.asks):
            return  # the engine may take seconds to try a structure, or to load an adapter
        await self._all_sent.wait()
        await asyncio.sleep(_REFUSED_WITHIN)
        await self._begin()

    async def _begin(self) -> None:
        async with self._beginning:
            if not self._begun:
                await self.request.events()
                self._begun = True

    def _teller(self, ask: Ask) -> LogProbsTeller | None:
        if ask.log_probs is None:
            return None
        kind = CompletionLogProbs if self.answer.form is COMPLETION else ChatLogProbs
        return kind(self.predictor.preparation.tokenizer)

    def _usage(self) -> Usage:
        firsts = [self._generations[index] for index in range(0, len(self.asks), self.per_prompt)]
        cached = [one.cached_tokens for one in firsts if one.cached_tokens is not None]
        return Usage(
            prompt=sum(one.prompt_tokens for one in firsts),
            completion=sum(one.token_count for one in self._generations.values()),
            cached=sum(cached) if cached else None,
        )


class _Once(Generic[_Result]):
    """What several wait for: made once, when the first of them asks. It outlives those who give up."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, _Result]]) -> None:
        self._make = make
        self._made: asyncio.Task[_Result] | None = None

    async def __call__(self) -> _Result:
        if self._made is None:
            self._made = asyncio.create_task(self._make())
        return await asyncio.shield(self._made)

    def close(self) -> None:
        """Nobody waits any more."""
        if self._made is not None:
            self._made.cancel()
            self._made = None  # it refers to its error, which refers here


def _so_far(generation: TextGeneration) -> Usage:
    return Usage(generation.prompt_tokens, generation.token_count, generation.cached_tokens)


def _finish_reason(generation: TextGeneration) -> str:
    """Raises EngineInternalError for an end that nobody asked for."""
    reason = generation.finish_reason
    if reason not in ("stop", "length"):
        raise EngineInternalError(reason=f"its text ended with {reason}")
    return reason


async def _side_by_side(work: Sequence[Coroutine[Any, Any, _Result]]) -> list[_Result]:
    """The results of all; the first error ends the others, and is raised."""
    if len(work) == 1:
        return [await work[0]]
    tasks = [asyncio.create_task(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        del tasks, task  # they refer to the error, and it refers here: only a collection would free them
