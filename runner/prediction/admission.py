"""How many predictions are let in, whose they are, and how they leave when the runner shuts down."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shared.errors import KeyLimitReached, LimitTooLow, Overloaded, ShuttingDown

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(slots=True)
class _Holder:
    """What the holder of one API key has; the empty one is everybody without a key."""

    key: str
    inside: int = 0
    tokens: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)

    @property
    def predictions(self) -> int:
        return self.inside + len(self.waiting)


@dataclass(slots=True)
class Together:
    """The predictions of one request, which run at the same time."""

    alike: int = 1
    """How many have the same prompt, and so the same number of tokens."""
    tokens: int = 0
    """Of those whose tokens are known."""


class Ticket:
    """A prediction that was let in. `on_late` is called when the runner can wait no longer."""

    __slots__ = ("_admission", "holder", "on_late", "tokens")

    def __init__(self, admission: Admission, holder: _Holder) -> None:
        self._admission = admission
        self.holder = holder
        self.tokens = 0
        self.on_late: Callable[[], object] = _nothing

    def hold(self, tokens: int, together: Together | None = None) -> None:
        """Count the tokens of the prompt and the most that may follow; `together`: it is one of these.

        Raises KeyLimitReached, and LimitTooLow if all of them have more than the key may ever have.
        """
        self._admission.held(self, tokens, together or Together())

    def leave(self) -> None:
        """Leave. May be called twice."""
        self.on_late = _nothing
        self._admission.left(self)


class Admission:
    """A limit on the predictions that run or wait in the engine, which works on them in order of arrival.

    While all places are taken, an API key that has less than an equal share of them waits for the next ones,
    which go to the key with the fewest; the others are refused. So a key that fills the engine cannot keep
    the others out, and may have all of it while it is alone. For one event loop.
    """

    def __init__(
        self,
        limit: int,
        *,
        key_requests: int | None = None,
        key_tokens: int | None = None,
        fix: str = "raise MAX_PREDICTIONS",
    ) -> None:
        """`key_requests`, `key_tokens`: what one API key may have at the same time; None: no limit.

        `fix`: what the operator can do about the limit.
        """
        self.limit = limit
        self._fix = fix
        self.closed = False
        """Whether `drain` has begun."""
        self._key_requests = key_requests
        self._key_tokens = key_tokens
        self._taken = 0  # places: of those inside, and of those on their way in
        self._inside: set[Ticket] = set()
        self._holders: dict[str, _Holder] = {}
        self._empty = asyncio.Event()

    @property
    def count(self) -> int:
        """How many are inside."""
        return len(self._inside)

    def check(self, predictions: int, key: str = "") -> None:
        """Before the first of a request's predictions enters. Raises LimitTooLow if they can never be inside
        together: the rest would be refused while the first are generated, and again at each new attempt.
        """
        limits = [(self.limit, "this runner", "MAX_PREDICTIONS")]
        if key and self._key_requests is not None:
            limits.append((self._key_requests, "your key", "KEY_MAX_REQUESTS"))
        limit, who, setting = min(limits)
        if predictions > limit:
            raise LimitTooLow(count=predictions, what="predictions", who=who, limit=limit, setting=setting)

    async def enter(self, key: str = "") -> Ticket:
        """Get in, until `leave`; `key`: the identity of the API key's holder.

        Raises KeyLimitReached when the key has reached its limit, Overloaded when all places are taken and
        the key has its share of them, ShuttingDown once `drain` has begun.
        """
        holder = self._holders.setdefault(key, _Holder(key))
        try:
            if self._has_place(holder):
                self._take(holder)
            else:
                await self._wait(holder)
        finally:
            self._forget(holder)
        return self._ticket(holder)

    def enter_now(self, key: str = "") -> Ticket | None:
        """As `enter`, but None for who would have to wait."""
        holder = self._holders.setdefault(key, _Holder(key))
        try:
            if not self._has_place(holder):
                return None
            self._take(holder)
        finally:
            self._forget(holder)
        return self._ticket(holder)

    def held(self, ticket: Ticket, tokens: int, together: Together) -> None:
        """For `Ticket.hold`."""
        holder, most = ticket.holder, self._key_tokens
        together.tokens += tokens
        if holder.key and most is not None:
            if (count := max(tokens * together.alike, together.tokens)) > most:
                what = "tokens for prompts and answers"
                raise LimitTooLow(
                    count=count, what=what, who="your key", limit=most, setting="KEY_MAX_TOKENS"
                )
            if (count := holder.tokens + tokens) > most:
                raise KeyLimitReached(what="tokens", count=count, limit=most)
        ticket.tokens = tokens
        holder.tokens += tokens

    def left(self, ticket: Ticket) -> None:
        """For `Ticket.leave`."""
        if ticket in self._inside:
            self._inside.remove(ticket)
            ticket.holder.tokens -= ticket.tokens
            self._give_back(ticket.holder)
            if self.closed and not self._inside:
                self._empty.set()

    async def drain(self, grace: float) -> None:
        """Let nobody in, wait up to `grace` seconds until all have left, and tell the rest."""
        self.closed = True
        for holder in self._holders.values():
            for place in holder.waiting:
                if not place.done():
                    place.set_exception(ShuttingDown())
            holder.waiting.clear()
        if self._inside:
            try:
                await asyncio.wait_for(self._empty.wait(), grace)
            except TimeoutError:
                for ticket in list(self._inside):
                    ticket.on_late()

    def _has_place(self, holder: _Holder) -> bool:
        """Whether there is a place for one more; False: it may wait. Raises what `enter` does."""
        if self.closed:
            raise ShuttingDown
        most, count = self._key_requests, holder.predictions + 1
        if holder.key and most is not None and count > most:
            raise KeyLimitReached(what="predictions", count=count, limit=most)
        if self._taken < self.limit:
            return True
        if count <= max(1, self.limit // len(self._holders)) and len(self._holders) > 1:
            return False
        what = f"prediction{' is' if self.limit == 1 else 's are'} running or waiting"
        raise Overloaded(limit=self.limit, what=what, fix=self._fix)

    def _ticket(self, holder: _Holder) -> Ticket:
        ticket = Ticket(self, holder)
        self._inside.add(ticket)
        return ticket

    async def _wait(self, holder: _Holder) -> None:
        place = asyncio.get_running_loop().create_future()
        holder.waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place in holder.waiting:
                holder.waiting.remove(place)
            elif place.done() and not place.cancelled() and place.exception() is None:
                self._give_back(holder)  # it was given just now
            raise

    def _take(self, holder: _Holder) -> None:
        self._taken += 1
        holder.inside += 1

    def _give_back(self, holder: _Holder) -> None:
        self._taken -= 1
        holder.inside -= 1
        while self._taken < self.limit:
            waiting = [one for one in self._holders.values() if one.waiting]
            if not waiting:
                break
            next_one = min(waiting, key=lambda one: one.inside)
            place = next_one.waiting.popleft()
            if not place.done():
                self._take(next_one)
                place.set_result(None)
        self._forget(holder)

    def _forget(self, holder: _Holder) -> None:
        if not holder.predictions:
            self._holders.pop(holder.key, None)


def _nothing() -> None:
    pass
