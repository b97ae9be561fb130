"""The answer to each request of Cog's API."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from runner.front.cog.prediction import Prediction
from runner.front.cog.reading import Reading
from runner.front.cog.replay import Replay
from runner.front.cog.schema import Refused
from runner.front.cog.webhooks import Target
from runner.front.http import JSON, refusal
from runner.front.keys import needs_key
from runner.front.statuses import is_busy
from shared.errors import CogTritonError, PredictionIdTaken, PredictionNotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from runner.front.app import App
    from runner.front.bodies import Bodies
    from runner.front.cog.prediction import Work
    from runner.front.cog.schema import Asked, Schema
    from runner.front.cog.store import Store
    from runner.front.cog.webhooks import Webhooks
    from runner.front.http import Request
    from runner.front.keys import Keys

    Start = Callable[[Asked, str, Request], Coroutine[Any, Any, Work]]

_SECONDS_UNTIL_ACCEPTED = 1
_INDEX = {
    "cog_version": "0.23.1",
    "healthcheck_url": "/health-check",
    "openapi_url": "/openapi.json",
    "predictions_cancel_url": "/predictions/{prediction_id}/cancel",
    "predictions_idempotent_url": "/predictions/{prediction_id}",
    "predictions_url": "/predictions",
}


class CogApi:
    """Predictions, as Cog's clients ask for them."""

    def __init__(
        self,
        schema: Schema,
        start: Start,
        store: Store,
        webhooks: Webhooks,
        bodies: Bodies,
        *,
        for_texts: bool = False,
    ) -> None:
        """`start(asked, prediction_id, request)` begins a prediction, and raises coded errors.

        `for_texts`: `Asked.ask` is what the inputs ask for.
        """
        self._schema = schema
        self._start = start
        self._store = store
        self._webhooks = webhooks
        self._bodies = bodies
        self._for_texts = for_texts
        self._tasks: set[asyncio.Task[None]] = set()

    def add_to(self, app: App, keys: Keys | None = None) -> None:
        """Add its routes; `keys`: one of them must be sent with requests about predictions."""
        for method, path, handler in (
            ("GET", "/", self._index),
            ("GET", "/openapi.json", self._openapi),
            ("POST", "/predictions", self._create),
            ("PUT", "/predictions/{id}", self._put),
            ("GET", "/predictions/{id}", self._get),
            ("POST", "/predictions/{id}/cancel", self._cancel),
        ):
            about_predictions = path.startswith("/predictions")
            app.router.add(method, path, needs_key(handler, keys if about_predictions else None))

    async def close(self) -> None:
        """Cancel what runs without a client."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _index(self, request: Request) -> None:
        await request.respond_json(200, _INDEX)

    async def _openapi(self, request: Request) -> None:
        await request.respond(200, self._schema.document, JSON)

    async def _create(self, request: Request) -> None:
        asked = await self._read(request)
        if asked is None:
            return
        await self._check_webhook(request, asked)
        if (
            asked.id is not None
            and (known := self._store.find(request.key, asked.id)) is not None
            and not known.ended
        ):
            raise PredictionIdTaken
        await self._begin(request, asked)

    async def _put(self, request: Request) -> None:
        asked = await self._read(request, request.variables["id"])
        if asked is None:
            return
        if self._store.find(request.key, asked.id or "") is None:
            await self._check_webhook(request, asked)
        known = self._store.find(request.key, asked.id or "")  # another request may have begun it meanwhile
        if known is None:
            await self._begin(request, asked)
        elif _wants_events(request):
            await self._follow(request, known)
        else:
            await request.respond_json(200 if known.ended else 202, known.full_view())

    async def _get(self, request: Request) -> None:
        known = self._store.find(request.key, request.variables["id"])
        if known is None:
            raise PredictionNotFound
        if _wants_events(request):
            await self._follow(request, known)
        else:
            await request.respond_json(200, known.full_view())

    async def _cancel(self, request: Request) -> None:
        known = self._store.find(request.key, request.variables["id"])
        if known is None:
            raise PredictionNotFound
        known.cancel()
        await request.respond_json(200, {})

    async def _read(self, request: Request, path_id: str | None = None) -> Asked | None:
        """The body, checked; None when it was refused and answered."""
        known = path_id is not None and self._store.find(request.key, path_id) is not None
        asked = await self._bodies.read(
            request,
            Reading(self._schema, path_id, self._for_texts),
            place=not known,  # or else it is only followed
            wait=False,  # one that waits can be looked up, cancelled and followed
        )
        if isinstance(asked, Refused):
            content = refusal(asked.error) | {"detail": asked.detail()}
            await request.respond_error(asked.error, 422, content)
            return None
        return asked

    async def _check_webhook(self, request: Request, asked: Asked) -> None:
        if asked.webhook is not None:
            with nullcontext() if _wants_no_waiting(request) else request.while_connected():
                await self._webhooks.check(asked.webhook, request.sender)

    async def _begin(self, request: Request, asked: Asked) -> None:
        """Run a new prediction, in the way that the client wants.

        Its id is taken before anything is awaited: a second request must not begin it too.
        """
        prediction = Prediction(
            asked.id or f"pred_{secrets.token_hex(8)}",
            self._schema.without_secrets(asked.inputs),
            request.key,
        )
        in_background = _wants_no_waiting(request) and not _wants_events(request)
        self._store.add(prediction)
        starting = asyncio.create_task(self._start(asked, prediction.id, request))
        prediction.on_cancel = starting.cancel
        if not in_background:
            request.on_disconnect(prediction.cancel)
        try:
            # One without a place may have to wait long for it; what refuses one is known soon.
            await asyncio.wait([starting], timeout=_SECONDS_UNTIL_ACCEPTED if in_background else None)
            if starting.done() and _is_refused(starting):
                await starting
            if asked.webhook is not None:
                target = Target(asked.webhook, request.sender, prediction.id, request.trace_context)
                self._webhooks.follow(prediction, target, asked.webhook_events)
            if in_background:
                task = asyncio.create_task(self._run(prediction, starting, request.count))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        except BaseException as problem:
            _abandon(starting)
            self._store.ended(prediction, keep=False)
            # Others may follow it already.
            await prediction.run(problem if isinstance(problem, CogTritonError) else None)
            del starting, prediction  # they refer to the error, which refers here
            raise
        if in_background:
            await request.respond_json(202, {"id": prediction.id, "status": "starting"})
            return
        try:
            work = await _begun(starting, request.count)
            if _wants_events(request):
                await request.events()
                await prediction.run(work, request.send)
                await request.end()
            else:
                await prediction.run(work)
                await request.respond_json(200, prediction.view())
        finally:
            _abandon(starting)
            self._store.ended(prediction, keep=False)

    async def _run(
        self, prediction: Prediction, starting: asyncio.Task[Work], count: Callable[[CogTritonError], object]
    ) -> None:
        try:
            await prediction.run(await _begun(starting, count))
        finally:
            _abandon(starting)
            self._store.ended(prediction, keep=True)

    async def _follow(self, request: Request, prediction: Prediction) -> None:
        """The events of a prediction that another request began."""
        replay = Replay(prediction)
        try:
            request.on_disconnect(replay.stop)
            await request.events()
            async for events in replay:
                await request.send(events)
            await request.end()
        finally:
            replay.close()


def _is_refused(starting: asyncio.Task[Work]) -> bool:
    """Whether the request is refused; what is wrong with a prediction itself is reported as its result."""
    if starting.cancelled():
        return False
    error = starting.exception()
    return error is not None and (not isinstance(error, CogTritonError) or is_busy(error))


def _abandon(starting: asyncio.Task[Work]) -> None:
    """Nobody follows it, or does any more."""
    if not starting.cancel() and not starting.cancelled() and starting.exception() is None:
        starting.result().close()


async def _begun(
    starting: asyncio.Task[Work], count: Callable[[CogTritonError], object]
) -> Work | CogTritonError | None:
    """The work of a prediction, or why there is none; None: it was cancelled before there was any."""
    if not starting.done():
        await asyncio.wait([starting])
    if starting.cancelled():
        return None
    error = starting.exception()
    if isinstance(error, CogTritonError):
        count(error)
        return error
    return await starting


def _wants_events(request: Request) -> bool:
    return "text/event-stream" in (request.header(b"accept") or "")


def _wants_no_waiting(request: Request) -> bool:
    return "respond-async" in (request.header(b"prefer") or "")
