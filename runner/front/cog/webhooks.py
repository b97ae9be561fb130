"""Telling a client's own address of a prediction."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import orjson
import structlog

from shared.errors import AddressRefused
from shared.secrets import public_address

if TYPE_CHECKING:
    import httpx2

    from runner.front.addresses import Addresses
    from runner.front.cog.prediction import Prediction

log = structlog.get_logger()

_THROTTLE_SECONDS = 0.5  # between two that tell of output, as in Cog
_TRIES = 8  # of the last one; 0.5, 1, 2, ... s apart
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 20


class Webhooks:
    """All of one front. For one event loop."""

    def __init__(self, addresses: Addresses, first_pause: float = _FIRST_PAUSE) -> None:
        self._addresses = addresses
        self._first_pause = first_pause
        self._client: asyncio.Future[httpx2.AsyncClient] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def check(self, address: str) -> None:
        """Raise E1326 for an address that nothing is sent to."""
        await self._addresses.check(address)

    def follow(self, prediction: Prediction, address: str, events: frozenset[str]) -> None:
        """Tell that address of these events of a prediction that begins."""
        task = asyncio.create_task(self._follow(prediction, address, events))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self, grace: float) -> None:
        """Let the last ones be told for so many seconds."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._client is not None:
            await (await self._client).aclose()

    async def _follow(self, prediction: Prediction, address: str, events: frozenset[str]) -> None:
        changed = asyncio.Event()
        waiting: set[str] = set()

        def tell(event: str) -> None:
            if event in events or event == "completed":
                waiting.add(event)
                changed.set()

        prediction.on_change.append(tell)
        ended = asyncio.Event()
        prediction.on_change.append(lambda event: ended.set() if event == "completed" else None)
        while not prediction.ended:
            await changed.wait()
            changed.clear()
            if "completed" in waiting:
                break
            # Several at once are one: each tells all there is. One that is lost is told by the next.
            waiting.clear()
            await self._send(prediction, address, tries=1)
            try:
                await asyncio.wait_for(ended.wait(), _THROTTLE_SECONDS)
            except TimeoutError:
                pass
        if "completed" in events:
            await self._send(prediction, address, tries=_TRIES)

    async def _send(self, prediction: Prediction, address: str, *, tries: int) -> None:
        import httpx2
        import tenacity

        client = await self._connected()
        body = orjson.dumps(prediction.view())
        headers = {"content-type": "application/json", **self._addresses.headers(address)}
        try:
            async for attempt in tenacity.AsyncRetrying(
                stop=tenacity.stop_after_attempt(tries),
                wait=tenacity.wait_exponential(self._first_pause, max=_LONGEST_PAUSE),
                retry=tenacity.retry_if_exception_type(httpx2.HTTPError),
                reraise=True,
            ):
                with attempt:
                    async with client.stream("POST", address, content=body, headers=headers) as answer:
                        answer.raise_for_status()
        except (httpx2.HTTPError, AddressRefused) as problem:
            reason = problem.for_log() if isinstance(problem, AddressRefused) else type(problem).__name__
            where = public_address(address)
            log.warning("webhook not told", prediction_id=prediction.id, address=where, reason=reason)

    async def _connected(self) -> httpx2.AsyncClient:
        if self._client is None:
            self._client = asyncio.ensure_future(asyncio.to_thread(_client, self._addresses))
        return await asyncio.shield(self._client)


def _client(addresses: Addresses) -> httpx2.AsyncClient:
    from runner.front.outbound import guarded_client

    return guarded_client(addresses)
