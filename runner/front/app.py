"""The ASGI application: finds the handler of a request, and answers itself when that fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.front.http import Disconnected, Request
from runner.front.router import Router
from runner.front.tracing import trace
from shared.errors import CogTritonError, GenericError
from shared.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.front.browsers import Browsers
    from runner.front.http import Receive, Scope, Send

log = get_logger()


class App:
    """Every API adds its routes to `router`."""

    def __init__(
        self,
        max_body_bytes: int,
        count: Callable[[CogTritonError], object] = lambda _: None,
        browsers: Browsers | None = None,
        keep_alive: float = 0,
    ) -> None:
        """`count` gets each error that a request is answered with; `browsers` says which of their requests
        are answered; `keep_alive`: as that of `Request`.
        """
        self.router = Router()
        self.count = count
        self._max_body_bytes = max_body_bytes
        self._browsers = browsers
        self._keep_alive = keep_alive

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive, send, self._max_body_bytes, self.count, self._keep_alive)
        try:
            trace(request)
            await self._answer(request)
        except Disconnected:
            pass
        except CogTritonError as error:
            await self._fail(request, error)
        except Exception:
            log.exception("request failed", path=request.path)
            await self._fail(request, GenericError())
        finally:
            request.close()

    async def _answer(self, request: Request) -> None:
        path = request.scope["raw_path"].decode("latin-1")
        if self._browsers is not None:
            try:
                self._browsers.check(request)
            except CogTritonError as error:
                await self.router.failure(path)(request, error)
                return
            if (headers := self._browsers.preflight(request)) is not None:
                await request.respond(200, b"", *headers)
                return
        handlers, variables = self.router.find(path)
        handler = handlers.get(request.method)
        if handler is not None:
            request.variables = variables
            await handler(request)
            return
        methods = sorted(handlers)
        if methods:
            request.headers.append((b"allow", ",".join(methods).encode()))
        await self.router.refusal(path)(request, methods)

    async def _fail(self, request: Request, error: CogTritonError) -> None:
        if request.started:
            self.count(error)
            raise error  # the connection is broken off: nothing else shows that the answer is incomplete
        await request.respond_error(error)
