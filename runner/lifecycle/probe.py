"""Whether the engine generates: a process that is there, and says so, may still hang."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import structlog

from shared.errors import CogTritonError

if TYPE_CHECKING:
    from collections.abc import Callable

log = structlog.get_logger()

_INTERVAL_SECONDS = 1.0


class Probe:
    """Looks once a second whether tokens have come; asks for one when none have."""

    def __init__(self, ask: Callable[[], object], token_count: Callable[[], int]) -> None:
        """`ask` gets a token or raises a coded error; `token_count` changes whenever tokens come."""
        self._ask = ask
        self._token_count = token_count
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="probe", daemon=True)
        self.is_alive = True

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask no more. May be called twice; does not wait for a question that is under way."""
        self._stopping.set()

    def _watch(self) -> None:
        seen = self._token_count()
        while not self._stopping.wait(_INTERVAL_SECONDS):
            before, seen = seen, self._token_count()
            problem = None if seen != before else self._problem()
            if problem and self.is_alive and not self._stopping.is_set():
                log.error("the engine does not generate", error=str(problem))
            self.is_alive = problem is None

    def _problem(self) -> CogTritonError | None:
        try:
            self._ask()
        except CogTritonError as error:
            return error
        return None
