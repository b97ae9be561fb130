"""The whole front: its routes, the engine once there is one, and its end."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

from runner.front.addresses import allowed_addresses
from runner.front.app import App
from runner.front.bodies import Bodies
from runner.front.browsers import Browsers
from runner.front.cog.api import CogApi
from runner.front.cog.schema import Schema
from runner.front.cog.store import Store
from runner.front.cog.text import TextWork
from runner.front.cog.webhooks import Webhooks
from runner.front.engine import LoadedEngine
from runner.front.health import Health
from runner.front.keys import Keys, needs_key
from runner.front.openai.api import OpenAIApi
from runner.front.page.page import Page
from runner.metrics import Metrics
from runner.prediction.admission import Admission
from shared.errors import CogTritonError, EngineNotReady, ShuttingDown
from shared.logs import get_logger

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable

    from runner.front.cog.schema import Asked
    from runner.front.http import Request
    from runner.settings import Settings
    from runner.triton.client import EngineClient

log = get_logger()

_PACKAGE = Path(__file__).resolve().parent.parent
_WEBHOOK_GRACE = 5


class Front:
    """Everything behind the port. For one event loop."""

    def __init__(
        self,
        settings: Settings,
        shut_down: Callable[[], object] = lambda: None,
        restarts: int = 0,
        listener: socket.socket | None = None,
    ) -> None:
        """`shut_down` is called by POST /shutdown; `restarts`: how many fronts of this runner have died;
        `listener`: where clients connect to.

        Raises SettingInvalid.
        """
        self._shut_down = shut_down
        self.settings = settings
        self.admission = Admission(
            settings.admitted_at_once,
            key_requests=settings.key_max_requests,
            key_tokens=settings.key_max_tokens,
        )
        self.health = Health(self.admission, restarts)
        self.metrics = Metrics(self.admission, lambda: self.client)
        self.metrics.constant("front_restarts", "Restarts of the front", restarts)
        self.metrics.gauge("ready", "1 while predictions can be answered", lambda: self.health.is_ready)
        keys = Keys.of(settings)
        browsers = Browsers.of(settings, listener, keys=keys is not None)
        self.app = App(settings.max_body_bytes, self.metrics.answered, browsers, settings.event_keep_alive)
        self.engine: LoadedEngine | None = None
        self.client: EngineClient | None = None
        self._bodies = Bodies(
            self.admission, settings.max_body_bytes, lambda error: self.metrics.ended("refused", error)
        )
        self._webhooks = Webhooks(allowed_addresses(settings))
        self._cog = CogApi(
            Schema.load(_PACKAGE, ignore_unknown=settings.ignore_unknown_inputs),
            self._start,
            Store(settings.keep_predictions, settings.keep_seconds, time.monotonic),
            self._webhooks,
            self._bodies,
            for_texts=True,
        )
        self._cog.add_to(self.app, keys if settings.cog_api_needs_key else None)
        OpenAIApi(
            self._loaded,
            self._bodies,
            settings.served_model_name,
            any_model=settings.accept_any_model,
            keys=keys,
            operator_key=None if settings.operator_key is None else settings.operator_key.get_secret_value(),
        ).add_to(self.app)
        self.health.add_to(self.app)
        metrics = needs_key(self._metrics, keys if settings.metrics_need_key else None)
        self.app.router.add("GET", "/metrics", metrics)
        self._page: Page | None = None
        self._watching: asyncio.Task[None] | None = None
        if settings.web_page:
            # Whoever needs a key for /v1/models is told no name without one.
            named = keys is None or settings.metrics_need_key
            page = Page(
                self.health,
                self.metrics,
                self.admission,
                lambda: self.client,
                lambda: self.engine,
                lambda: self._model() if named else None,
            )
            page.add_to(self.app, keys if settings.metrics_need_key else None)
            self._page = page
        if settings.allow_shutdown:
            self.app.router.add("POST", "/shutdown", self._shutdown)

    async def load(self, directory: Path, connect: Callable[[], Awaitable[EngineClient]]) -> None:
        """Have the engine in `directory` answer predictions; returns when it generates.

        Raises TritonTokenizerError and SettingInvalid when it never will.
        """
        if self._page is not None:
            self._watching = asyncio.create_task(self._page.watch())

        async def connected() -> EngineClient:
            self.client = await connect()
            return self.client

        engine = await LoadedEngine.load(directory, connected, self.admission, self.metrics, self.settings)
        self.engine = engine
        self.health.ready(engine.generates)

    async def drain(self, seconds: float) -> None:
        """Let nobody in, and let those inside finish."""
        await self.admission.drain(seconds)

    async def close(self) -> None:
        """End what it holds."""
        if self._watching is not None:
            self._watching.cancel()
        await self._cog.close()
        await self._bodies.close()
        await self._webhooks.close(_WEBHOOK_GRACE)
        if self.engine is not None:
            await self.engine.close()
        elif self.client is not None:
            await self.client.close()

    def _loaded(self) -> LoadedEngine:
        """Raises ShuttingDown once it drains, EngineNotReady while no engine accepts requests."""
        if self.admission.closed:
            raise ShuttingDown
        if self.engine is None:
            raise EngineNotReady
        self.engine.check()
        return self.engine

    def _model(self) -> str | None:
        return None if self.engine is None else self.settings.served_model_name or self.engine.model

    async def _start(self, asked: Asked, prediction_id: str, request: Request) -> TextWork:
        predictor = self._loaded().predictor
        ask = asked.ask
        assert ask is not None
        if isinstance(ask, CogTritonError):
            raise ask
        return TextWork(
            await predictor.start(
                ask,
                key=request.key,
                sender=request.sender,
                prediction_id=prediction_id,
                place=request.take_place(),
            )
        )

    async def _metrics(self, request: Request) -> None:
        # In a thread: Triton's own are fetched for it.
        text = await asyncio.to_thread(self.metrics.exposition)
        await request.respond(200, text, (b"content-type", b"text/plain; version=0.0.4; charset=utf-8"))

    async def _shutdown(self, request: Request) -> None:
        await request.respond_json(200, {})
        self._shut_down()
