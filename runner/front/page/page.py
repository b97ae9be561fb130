"""The page's routes: its files, and what it shows about the runner."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

from runner.front.keys import needs_key
from runner.front.page.history import SECONDS, History
from shared import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.front.app import App
    from runner.front.engine import LoadedEngine
    from runner.front.health import Health
    from runner.front.http import Header, Request
    from runner.front.keys import Keys
    from runner.front.router import Handler
    from runner.metrics import Metrics
    from runner.prediction.admission import Admission
    from runner.triton.client import EngineClient

_FILES = Path(__file__).parent / "static"
_INDEX = "index.html"
_TYPES = {".html": b"text/html", ".css": b"text/css", ".js": b"text/javascript", ".svg": b"image/svg+xml"}
# Only these files and this server; no other page may embed this one.
_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    b" base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: tuple[Header, ...] = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-cache"),
)


class Page:
    """For one event loop; `watch` fills what it shows."""

    def __init__(
        self,
        health: Health,
        metrics: Metrics,
        admission: Admission,
        client: Callable[[], EngineClient | None],
        engine: Callable[[], LoadedEngine | None],
        model: Callable[[], str | None],
    ) -> None:
        """`model`: its name, if there is an engine and the page may tell it."""
        self._health = health
        self._admission = admission
        self._engine = engine
        self._model = model
        self._history = History(metrics, admission, client, time.monotonic())

    def add_to(self, app: App, keys: Keys | None = None) -> None:
        """Add its routes; `keys`: one of them must be sent to see how the runner is.

        `/` is answered as before unless HTML is asked for.
        """
        others = app.router.find("/")[0]["GET"]
        for method in ("GET", "HEAD"):
            app.router.add(method, "/", _for_browsers(_file(_FILES / _INDEX), others))
        for file in _FILES.iterdir():
            if file.name != _INDEX:
                app.router.add("GET", f"/page/{file.name}", _file(file))
        app.router.add("GET", "/page/status", needs_key(self._status, keys))

    async def watch(self) -> None:
        """Watch the runner, for ever."""
        while True:
            await asyncio.sleep(SECONDS)
            self._history.take(time.monotonic())

    async def _status(self, request: Request) -> None:
        engine = self._engine()
        view = {
            "status": self._health.status,
            "version": VERSION,
            "model": self._model(),
            "chat": engine is not None and engine.has_chat_template,
            "limit": self._admission.limit,
            **self._history.view(time.monotonic()),
        }
        await request.respond_json(200, view, (b"cache-control", b"no-store"))


def _file(path: Path) -> Handler:
    content, kind = path.read_bytes(), (b"content-type", _TYPES[path.suffix] + b"; charset=utf-8")

    async def handle(request: Request) -> None:
        await request.respond(200, content, kind, *_HEADERS)

    return handle


def _for_browsers(page: Handler, others: Handler) -> Handler:
    async def handle(request: Request) -> None:
        request.headers.append((b"vary", b"accept"))
        wants_page = "text/html" in (request.header(b"accept") or "")
        await (page if wants_page else others)(request)

    return handle
