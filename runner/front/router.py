"""Which handler answers a request, and what answers when there is none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from runner.front.http import Request
    from shared.errors import CogTritonError

Handler = Callable[["Request"], Awaitable[None]]
Refusal = Callable[["Request", Sequence[str]], Awaitable[None]]
"""Answers requests without a handler; it gets the methods that the path has."""
Failure = Callable[["Request", "CogTritonError"], Awaitable[None]]
"""Answers with an error."""
_Answer = TypeVar("_Answer", Refusal, Failure)


class Router:
    """`add("GET", "/things/{id}", handler)`; a `{name}` is one part of a path that is not empty."""

    def __init__(self) -> None:
        self._fixed: dict[str, dict[str, Handler]] = {}
        self._patterns: dict[tuple[str, ...], dict[str, Handler]] = {}
        self._refusals: dict[str, Refusal] = {}
        self._failures: dict[str, Failure] = {}

    def add(self, method: str, path: str, handler: Handler) -> None:
        """Answer such requests with `handler`; GET answers HEAD too."""
        if "{" in path:
            handlers = self._patterns.setdefault(tuple(path.split("/")), {})
        else:
            handlers = self._fixed.setdefault(path, {})
        handlers[method] = handler
        if method == "GET":
            handlers.setdefault("HEAD", handler)

    def refuse(self, folder: str, refusal: Refusal, failure: Failure | None = None) -> None:
        """Use `refusal` for requests without a handler in a folder like "/v1", and `failure` for those that
        are refused before one is looked for.
        """
        self._refusals[folder] = refusal
        if failure is not None:
            self._failures[folder] = failure

    def refusal(self, raw_path: str) -> Refusal:
        """What answers requests without a handler there: a bare status, unless an API does."""
        return _of_folder(self._refusals, raw_path) or _bare

    def failure(self, raw_path: str) -> Failure:
        """What answers with an error there: in the form of Cog's API, unless another API does."""
        return _of_folder(self._failures, raw_path) or _in_cogs_form

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


def _of_folder(answers: dict[str, _Answer], raw_path: str) -> _Answer | None:
    for folder, answer in answers.items():
        if f"{raw_path}/".startswith(f"{folder}/"):
            return answer
    return None


async def _in_cogs_form(request: Request, error: CogTritonError) -> None:
    await request.respond_error(error)


async def _bare(request: Request, methods: Sequence[str]) -> None:
    await request.respond(405 if methods else 404, b"")
