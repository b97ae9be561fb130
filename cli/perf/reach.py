"""How to ask a server: found out from its address, from its answers, and with a first request."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlunsplit

import orjson

from cli.perf.address import parsed
from cli.perf.http import get
from cli.perf.load import WATCH_SECONDS, abandon_if_due
from cli.perf.request import NOT_CONNECTED, STALLED, Request
from cli.perf.targets import TargetName, candidates, key_headers
from shared.errors import ServerNotMeasured
from shared.secrets import public_address

if TYPE_CHECKING:
    from urllib.parse import SplitResult

    from cli.perf.targets import Ask, Target

_SECONDS = 10.0
_NO_USE = (NOT_CONNECTED, STALLED, "HTTP 401", "HTTP 403")  # asking in another form
# The path where each kind of server answers 200.
_SIGNS: tuple[tuple[TargetName, str], ...] = (
    ("triton", "/v2/health/ready"),
    ("cog-triton", "/health-check"),
    ("openai", "/v1/models"),
)


async def kind_of(url: SplitResult, named: TargetName | None) -> TargetName:
    """What answers there: as `named`, by scheme and path, else by asking. Raises ServerNotMeasured."""
    if url.scheme == "grpc" and named not in (None, "triton"):
        raise ServerNotMeasured(url=_shown(url), reason="only Triton is asked over gRPC")
    if named is not None:
        return named
    if url.scheme == "grpc" or url.path.startswith("/v2/"):
        return "triton"
    if url.path.endswith(("/predictions", "/predictions/")) and "replicate" in (url.hostname or ""):
        return "replicate"
    if "/v1" in url.path:
        return "openai"
    if url.path.rstrip("/").endswith("/predictions"):
        return "cog-triton"
    reason = "nothing there answers like Cog's, OpenAI's or Triton's API"
    for name, path in _SIGNS:
        try:
            status, _ = await get(_at(url, path), key_headers(url), _SECONDS)
        except OSError as error:
            reason = str(error)
        else:
            if status == 200:
                return name
    raise ServerNotMeasured(url=_shown(url), reason=reason)


async def model_of(url: SplitResult) -> str:
    """The first that a server of OpenAI's API lists. Raises ServerNotMeasured."""
    root = url.path.split("/v1")[0].rstrip("/")
    try:
        status, content = await get(_at(url, f"{root}/v1/models"), key_headers(url), _SECONDS)
        if status == 200:
            return str(orjson.loads(content)["data"][0]["id"])
        reason = f"/v1/models answered with {status}"
    except OSError as error:
        reason = str(error)
    except (KeyError, IndexError, TypeError, ValueError):
        reason = "/v1/models lists no model"
    raise ServerNotMeasured(url=_shown(url), reason=reason)


async def reach(
    name: TargetName, url: SplitResult, model: str | None, ask: Ask, stall_seconds: float
) -> tuple[Target, Request]:
    """The way of asking that it accepts, and the request that showed it. Raises ServerNotMeasured.

    A request is abandoned as one of the load is.
    Servers that cannot be told how many tokens to make are asked for at most that many.
    """
    refused: Request | None = None
    for target in candidates(name, url, model, ask):
        request = Request(0, time.perf_counter(), sent=time.perf_counter())
        await _send(target, request, stall_seconds)
        if request.failure is None:
            return target, request
        await target.close()
        refused = request
        if request.failure in _NO_USE:
            break
    assert refused is not None
    reason = f"its first request failed: {refused.failure}"
    raise ServerNotMeasured(url=_shown(url), reason=f"{reason} ({refused.said})" if refused.said else reason)


async def _send(target: Target, request: Request, stall_seconds: float) -> None:
    sending = asyncio.ensure_future(target.send(request, "0 a a a"))
    try:
        while not sending.done():
            if abandon_if_due(request, target, stall_seconds):
                return
            await asyncio.wait({sending}, timeout=WATCH_SECONDS)
        await sending
    finally:
        sending.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await sending


def metrics_address(url: SplitResult, given: str | None) -> str | None:
    """Where the server reports its metrics: as `given`, else at its /metrics, which gRPC does not have.

    Raises ServerNotMeasured.
    """
    if given is None:
        return None if url.scheme == "grpc" else _at(url, "/metrics")
    address = parsed(given)
    if address.scheme == "grpc":
        raise ServerNotMeasured(url=_shown(address), reason="metrics are read over http:// or https://")
    return urlunsplit(address)


def _at(url: SplitResult, path: str) -> str:
    """Another path of the server. The query stays: gateways want `?api-version=` with every request."""
    return urlunsplit((url.scheme, url.netloc, path, url.query, ""))


def _shown(url: SplitResult) -> str:
    return public_address(urlunsplit(url))
