"""How to ask a server: found out from its address, from its answers, and with a first request."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import httpx2

from cli.perf.http import client, why
from cli.perf.request import NOT_CONNECTED, Request
from cli.perf.targets import TargetName, candidates, key_headers
from shared.errors import ServerNotMeasured
from shared.secrets import public_address

if TYPE_CHECKING:
    from urllib.parse import SplitResult

    from cli.perf.targets import Ask, Target

_SECONDS = 10.0
_SCHEMES = ("http", "https", "grpc")
_NO_USE = (NOT_CONNECTED, "HTTP 401", "HTTP 403")  # asking in another form
# The path where each kind of server answers 200.
_SIGNS: tuple[tuple[TargetName, str], ...] = (
    ("triton", "/v2/health/ready"),
    ("cog-triton", "/health-check"),
    ("openai", "/v1/models"),
)


def parsed(url: str) -> SplitResult:
    """The address, http unless it says otherwise. Raises ServerNotMeasured."""
    whole = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(whole)
    except ValueError:
        raise ServerNotMeasured(url=public_address(whole), reason="it is not a valid address") from None
    try:
        _ = parts.port
    except ValueError:
        raise ServerNotMeasured(
            url=public_address(whole), reason="its port is not a number from 0 to 65535"
        ) from None
    if parts.scheme not in _SCHEMES or not parts.hostname:
        raise ServerNotMeasured(
            url=public_address(whole), reason="an address begins with http://, https:// or grpc://"
        )
    try:
        query = httpx2.URL(whole).query.decode()  # as it can be sent: a space is %20
        parts.hostname.encode("idna")
    except (httpx2.InvalidURL, UnicodeError):
        raise ServerNotMeasured(url=public_address(whole), reason="no host has such a name") from None
    if parts.scheme == "grpc" and not parts.port:
        raise ServerNotMeasured(url=public_address(whole), reason="gRPC needs a port, such as 8001")
    if parts.scheme == "grpc" and query:
        raise ServerNotMeasured(url=public_address(whole), reason="a grpc:// address has no query")
    return parts._replace(query=query)


def kind_of(url: SplitResult, named: TargetName | None) -> TargetName:
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
            with client(_SECONDS) as asking:
                if asking.get(_at(url, path), headers=key_headers(url)).status_code == 200:
                    return name
        except httpx2.HTTPError as error:
            reason = why(error)
    raise ServerNotMeasured(url=_shown(url), reason=reason)


def model_of(url: SplitResult) -> str:
    """The first that a server of OpenAI's API lists. Raises ServerNotMeasured."""
    root = url.path.split("/v1")[0].rstrip("/")
    try:
        with client(_SECONDS) as asking:
            answer = asking.get(_at(url, f"{root}/v1/models"), headers=key_headers(url))
        return str(answer.raise_for_status().json()["data"][0]["id"])
    except httpx2.HTTPStatusError as refused:
        reason = f"/v1/models answered with {refused.response.status_code}"
    except httpx2.HTTPError as error:
        reason = why(error)
    except (KeyError, IndexError, TypeError, ValueError):
        reason = "/v1/models lists no model"
    raise ServerNotMeasured(url=_shown(url), reason=reason)


async def reach(name: TargetName, url: SplitResult, model: str | None, ask: Ask) -> tuple[Target, Request]:
    """The way of asking that it accepts, and the request that showed it. Raises ServerNotMeasured.

    Servers that cannot be told how many tokens to make are asked for at most that many.
    """
    refused: Request | None = None
    for target in candidates(name, url, model, ask):
        request = Request(0, time.perf_counter(), sent=time.perf_counter())
        await target.send(request, "0 a a a")
        if request.failure is None:
            return target, request
        await target.close()
        refused = request
        if request.failure in _NO_USE:
            break
    assert refused is not None
    reason = f"its first request failed: {refused.failure}"
    raise ServerNotMeasured(url=_shown(url), reason=f"{reason} ({refused.said})" if refused.said else reason)


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
