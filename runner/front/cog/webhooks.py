"""Reporting a prediction to the client's own address."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

import orjson

from runner.front.slots import Slots
from shared.errors import AddressRefused, WebhooksWaiting
from shared.logs import get_logger
from shared.secrets import public_address

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import httpx2

    from runner.front.addresses import Addresses
    from runner.front.cog.prediction import Prediction

log = get_logger()

_THROTTLE_SECONDS = 0.5  # between two that report output, as in Cog
_TRIES = 8  # of the last one; 0.5, 1, 2, ... s apart
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 20
_AT_ONCE = 1000
_AT_ONCE_TO_HOST = 400  # the connections that it holds by not answering are not missed by others
_SECONDS = 300  # for all tries; eight that are not answered take 292
_WITH_BODY = {301: 308, 302: 307}
_ROOM = 64 << 20  # bytes of the last ones, until they are delivered; one sender has a quarter at most
_PARTS = 4
_EACH = 8 << 10  # bytes that one takes besides its body


class Webhooks:
    """All webhooks of one front. For one event loop."""

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses
        self._client: asyncio.Future[httpx2.AsyncClient] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = Slots(_AT_ONCE)
        self._hosts: WeakValueDictionary[str, Slots] = WeakValueDictionary()
        self._waiting: Counter[str] = Counter()
        """Bytes of the last ones that are not delivered yet, by their senders."""

    async def check(self, address: str, sender: str) -> None:
        """Raise AddressRefused for an address to which nothing is sent, WebhooksWaiting if too many of the
        sender's are not delivered yet.
        """
        room = _ROOM // max(_PARTS, len(self._waiting))
        if self._waiting[sender] > room:
            raise WebhooksWaiting(limit=room >> 20)
        await self._addresses.check(address, sender)

    def follow(self, prediction: Prediction, target: Target, events: frozenset[str]) -> None:
        """Report these events of a prediction that begins."""
        task = asyncio.create_task(self._follow(_Hook(prediction, events), target))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self, grace: float) -> None:
        """Allow that many seconds for the last ones, and end what it holds."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._client is not None:
            await (await self._client).aclose()
        self._addresses.close()

    async def _follow(self, hook: _Hook, target: Target) -> None:
        try:
            while (body := await hook.next()) is not None:
                await self._send(target, body, tries=1)  # the next one makes up for a lost one
                await hook.ended(_THROTTLE_SECONDS)
            last = hook.close()
            del hook  # the prediction, whose prompt may be large, is needed no more
            if last is not None:
                with self._counted(target.sender, len(last) + _EACH):
                    await self._send(target, last, tries=_TRIES)
        except asyncio.CancelledError:
            target.tell_lost("the server was shut down first")
            raise

    @contextmanager
    def _counted(self, sender: str, size: int) -> Iterator[None]:
        self._waiting[sender] += size
        try:
            yield
        finally:
            self._waiting[sender] -= size
            if not self._waiting[sender]:
                del self._waiting[sender]

    async def _send(self, target: Target, body: bytes, *, tries: int) -> None:
        import httpx2
        import tenacity

        from runner.front.outbound import ANSWER_SECONDS, SENDER, why_failed

        try:
            client = await self._connected()
        except OSError as problem:
            target.tell_lost(str(problem))
            return
        address, sender = target.address, target.sender
        host = self._hosts.setdefault(_host_of(address), Slots(_AT_ONCE_TO_HOST))
        headers = {
            "content-type": "application/json",
            **target.trace_context,
            **self._addresses.headers(address),
        }
        try:
            async with asyncio.timeout(_SECONDS):
                async for attempt in tenacity.AsyncRetrying(
                    stop=tenacity.stop_after_attempt(tries),
                    wait=tenacity.wait_exponential(_FIRST_PAUSE, max=_LONGEST_PAUSE),
                    retry=tenacity.retry_if_exception_type((httpx2.HTTPError, TimeoutError)),
                    reraise=True,
                ):
                    with attempt:
                        async with (
                            host.slot(sender),
                            self._slots.slot(sender),
                            asyncio.timeout(ANSWER_SECONDS),
                            client.stream(
                                "POST", address, content=body, headers=headers, extensions={SENDER: sender}
                            ) as answer,
                        ):
                            answer.raise_for_status()
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, AddressRefused) as problem:
            reason = problem.for_log() if isinstance(problem, AddressRefused) else why_failed(problem)
            target.tell_lost(reason)

    async def _connected(self) -> httpx2.AsyncClient:
        if self._client is None:
            self._client = asyncio.ensure_future(asyncio.to_thread(_client, self._addresses))
        try:
            return await asyncio.shield(self._client)
        except OSError:
            self._client = None  # the next one tries again
            raise


class Target(NamedTuple):
    """Where a prediction is reported to."""

    address: str
    sender: str
    """Who named the address."""
    prediction_id: str
    trace_context: Mapping[str, str]
    """Of the request that began it, as headers."""

    def tell_lost(self, reason: str) -> None:
        """Log that a report is lost."""
        where = public_address(self.address)
        log.warning("webhook not delivered", prediction_id=self.prediction_id, address=where, reason=reason)


class _Hook:
    """What has yet to be reported about one prediction."""

    def __init__(self, prediction: Prediction, events: frozenset[str]) -> None:
        self.prediction = prediction
        self.events = events
        self._start: bytes | None = None
        self._more = False
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()
        prediction.on_change.append(self._tell)

    async def next(self) -> bytes | None:
        """The body with what is new, once there is something; None at the end."""
        while True:
            self._changed.clear()
            if self._start is not None:
                body, self._start, self._more = self._start, None, False
                return body
            if self._ended.is_set():
                return None
            if self._more:
                self._more = False
                return orjson.dumps(self.prediction.view())
            await self._changed.wait()

    async def ended(self, seconds: float) -> None:
        """Wait for the end, or that long."""
        try:
            await asyncio.wait_for(self._ended.wait(), seconds)
        except TimeoutError:
            pass

    def close(self) -> bytes | None:
        """Follow the prediction no more; return the body that reports its end, if that is wanted."""
        self.prediction.on_change.remove(self._tell)
        return orjson.dumps(self.prediction.view()) if "completed" in self.events else None

    def _tell(self, event: str) -> None:
        if event == "start" and event in self.events:
            self._start = orjson.dumps(self.prediction.view())
        elif event in ("output", "logs") and event in self.events:
            self._more = True
        elif event == "completed":
            self._ended.set()
        self._changed.set()


def _host_of(address: str) -> str:
    """The host and the port that it names."""
    return urlsplit(address).netloc.rpartition("@")[2].lower()


def _client(addresses: Addresses) -> httpx2.AsyncClient:
    from runner.front.outbound import guarded_client

    client = guarded_client(addresses)
    client.event_hooks = {"response": [_keep_body]}
    return client


async def _keep_body(answer: httpx2.Response) -> None:
    """After a 301 or 302, clients go on with a GET (RFC 9110, 15.4), and what is reported would be lost."""
    answer.status_code = _WITH_BODY.get(answer.status_code, answer.status_code)
