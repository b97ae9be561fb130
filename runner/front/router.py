"""Which handler answers a request, and what answers when there is none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runner.front.http import Request

Handler = Callable[["Request"], Awaitable[None]]
Refusal = Callable[["Request", Sequence[str]], Awaitable[None]]
"""Answers requests without a handler; it gets the methods that the path has."""


class Router:
    """`add("GET", "/things/{id}", handler)`; a `{name}` is one part of a path that is not empty."""

    def __init__(self) -> None:
        self._fixed: dict[str, dict[str, Handler]] = {}
        self._patterns: dict[tuple[str, ...], dict[str, Handler]] = {}
        self._refusals: dict[str, Refusal] = {}

    def add(self, method: str, path: str, handler: Handler) -> None:
        """Answer such requests with `handler`; GET answers HEAD too."""
        if "{" in path:
            handlers = self._patterns.setdefault(tuple(path.split("/")), {})
        else:
            handlers = self._fixed.setdefault(path, {})
        handlers[method] = handler
        if method == "GET":
            handlers.setdefault("HEAD", handler)

    def refuse(self, folder: str, refusal: Refusal) -> None:
        """Use `refusal` for requests without a handler in a folder like "/v1"."""
        self._refusals[folder] = refusal

    def refusal(self, raw_path: str) -> Refusal:
        """What answers requests without a handler there: a bare status, unless an API does."""
        for folder, refusal in self._refusals.items():
            if f"{raw_path}/".startswith(f"{folder}/"):
                return refusal
        return _bare

    def find(self, raw_path: str) -> tuple[dict[str, Handler], dict[str, str]]:
        """The handlers of a path (as it was sent, with its escapes) by method, and its variables."""
        fixed = self._fixed.get(raw_path)
        if fixed is not None:
            return fixed, {}
        parts = raw_path.split("/")
        for pattern, handlers in self._patterns.items():
            if len(pattern) != len(parts):
                continue
            pairs = list(zip(pattern, parts, strict=True))
            if all(part if wanted.startswith("{") else part == wanted for wanted, part in pairs):
                variables = {name[1:-1]: part for name, part in pairs if name.startswith("{")}
                return handlers, variables
        return {}, {}


async def _bare(request: Request, methods: Sequence[str]) -> None:
    await request.respond(405 if methods else 404, b"")
