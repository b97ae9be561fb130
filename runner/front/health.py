"""Whether predictions can be answered: for Cog's clients, and for those that only look at statuses."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from shared import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.front.app import App
    from runner.front.http import Request
    from runner.prediction.admission import Admission

_READY = "READY"
_BUSY = "BUSY"


class Health:
    """STARTING, then READY (BUSY when no more are accepted), UNHEALTHY or SETUP_FAILED."""

    def __init__(self, admission: Admission, front_restarts: int = 0) -> None:
        self._admission = admission
        self._front_restarts = front_restarts
        self._started_at = _now()
        self._completed_at: str | None = None
        self._error: str | None = None
        self._generates: Callable[[], bool] = lambda: False

    def ready(self, generates: Callable[[], bool]) -> None:
        """The set-up is done; `generates` says from now on whether the engine does."""
        self._completed_at = _now()
        self._generates = generates

    def failed(self, error: str) -> None:
        """The set-up has failed for good."""
        self._completed_at = _now()
        self._error = error

    @property
    def status(self) -> str:
        """In Cog's words."""
        if self._error is not None:
            return "SETUP_FAILED"
        if self._completed_at is None:
            return "STARTING"
        if self._admission.closed or not self._generates():
            return "UNHEALTHY"
        return _BUSY if self._admission.count >= self._admission.limit else _READY

    @property
    def is_ready(self) -> bool:
        """Whether predictions can be answered, even if no more fit right now."""
        return self.status in (_READY, _BUSY)

    def add_to(self, app: App) -> None:
        """Add its routes."""
        app.router.add("GET", "/health-check", self._check)
        app.router.add("GET", "/health", self._is_ready)
        app.router.add("GET", "/health/live", self._live)
        app.router.add("GET", "/health/ready", self._is_ready)

    def view(self) -> dict[str, Any]:
        """As Cog reports it."""
        setup: dict[str, Any] = {"started_at": self._started_at}
        if self._completed_at is not None:
            setup["completed_at"] = self._completed_at
        setup["status"] = (
            "failed" if self._error is not None else "succeeded" if self._completed_at else "starting"
        )
        setup["logs"] = self._error or ""
        return {
            "status": self.status,
            "setup": setup,
            "front_restarts": self._front_restarts,
            "version": {"cog_triton": VERSION, "python": sys.version.split()[0]},
        }

    async def _check(self, request: Request) -> None:
        # HTTP 200 whatever it says: that is what Cog's clients expect.
        await request.respond_json(200, self.view())

    async def _live(self, request: Request) -> None:
        await request.respond_json(200, {"status": self.status})

    async def _is_ready(self, request: Request) -> None:
        view = {"status": self.status, "front_restarts": self._front_restarts}
        await request.respond_json(200 if self.is_ready else 503, view)


def _now() -> str:
    return datetime.now(UTC).isoformat()
