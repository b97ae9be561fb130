"""The HTTP client for addresses that a client gave: it connects only where `Addresses` allows.

Imported when first needed: importing the library takes longer than anything else at the start.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING

import httpx2

from shared.errors import UploadFailed
from shared.secrets import public_address
from shared.tls import in_causes, trusting, why_refused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from runner.front.addresses import Addresses

ANSWER_SECONDS = 30
SENDER = "cog-triton.sender"
"""The extension of httpx2's requests that says who named the address; after a redirect they have it too."""
_CONNECT_SECONDS = 10
_MAX_REDIRECTS = 5
_CONNECTIONS = 1000
_IDLE = 20
_PIECE = 1 << 20
_MAX_ANSWER = 1 << 20  # bytes that are read of what a receiver says
_CLOSED_EARLY = ("Server disconnected", "peer closed connection")  # the same class has what is not HTTP


class _Guarded(httpx2.AsyncHTTPTransport):
    """Connects to the IP address that was checked; the name stays in `Host` and in TLS."""

    def __init__(self, addresses: Addresses) -> None:
        # No proxies, but SSL_CERT_FILE.
        super().__init__(
            trust_env=False,
            verify=trusting(),
            limits=httpx2.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_IDLE),
        )
        self._addresses = addresses

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises AddressRefused for an address to which nothing is sent; redirects come here too."""
        ip = await self._addresses.check(str(request.url), request.extensions[SENDER])
        guarded = httpx2.Request(
            request.method,
            request.url.copy_with(host=ip),
            headers=request.headers,
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": request.url.host},
        )
        return await super().handle_async_request(guarded)


def guarded_client(addresses: Addresses) -> httpx2.AsyncClient:
    """A client for one event loop; made in any thread. Raises OSError when TLS cannot be used."""
    return httpx2.AsyncClient(
        transport=_Guarded(addresses),
        # None are kept: the client is everybody's, and a receiver could fill its memory.
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        timeout=httpx2.Timeout(ANSWER_SECONDS, connect=_CONNECT_SECONDS),
        follow_redirects=True,
        max_redirects=_MAX_REDIRECTS,
        trust_env=False,
    )


def why_failed(problem: httpx2.HTTPError | httpx2.InvalidURL | TimeoutError) -> str:
    """In words, without the address, which may hold a signature."""
    match problem:
        case httpx2.HTTPStatusError():
            return f"it answered with {problem.response.status_code}"
        case httpx2.ConnectError():
            refused = in_causes(problem)
            return "no connection" if refused is None else why_refused(refused)
        case httpx2.TimeoutException() | TimeoutError():
            return "it did not answer in time"
        case httpx2.TooManyRedirects():
            return "it redirects too often"
        case httpx2.InvalidURL() | httpx2.UnsupportedProtocol():
            return "it is, or redirects to, what is not a valid http or https address"
        case httpx2.NetworkError():
            return "the connection broke"
        case httpx2.RemoteProtocolError() if str(problem).startswith(_CLOSED_EARLY):
            return "it closed the connection before it had answered"
        case _:
            return "its answer cannot be read"


async def put_file(
    addresses: Addresses, address: str, sender: str, path: Path, progress: Callable[[int], object]
) -> str:
    """Send a file with PUT, as it is read; return where it is now, which the answer may say in `Location`.

    `sender`: who named the address; `progress` gets how many bytes have been sent. Each piece has
    ANSWER_SECONDS, and so has the answer, of whose body no more than the beginning is read.

    Raises AddressRefused for an address to which nothing is sent, UploadFailed when it does not accept the
    file.
    """
    limit = asyncio.timeout(None)

    def begin_to_wait() -> None:
        limit.reschedule(asyncio.get_running_loop().time() + ANSWER_SECONDS)

    async def content() -> AsyncIterator[bytes]:
        with path.open("rb") as file:
            while piece := await asyncio.to_thread(file.read, _PIECE):
                progress(file.tell() - len(piece))
                begin_to_wait()
                yield piece
        begin_to_wait()

    size = path.stat().st_size  # noqa: ASYNC240 - one look
    headers = {"content-type": "application/x-tar", "content-length": str(size), **addresses.headers(address)}
    try:
        client = await asyncio.to_thread(guarded_client, addresses)
    except OSError as error:
        raise UploadFailed(address=public_address(address), reason=str(error)) from None
    try:
        # A body that can be read only once cannot follow a redirect.
        request = client.build_request(
            "PUT", address, content=content(), headers=headers, extensions={SENDER: sender}
        )
        async with client, limit:
            answer = await client.send(request, stream=True, follow_redirects=False)
            left = _MAX_ANSWER
            async for chunk in answer.aiter_raw():  # unpacked, they could have any size
                left -= len(chunk)
                if left < 0:
                    break
            await answer.aclose()
        answer.raise_for_status()
    except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError) as error:
        raise UploadFailed(address=public_address(address), reason=why_failed(error)) from None
    with suppress(httpx2.InvalidURL):  # the file is there all the same
        if location := answer.headers.get("location"):
            return str(answer.url.join(location))
    return address.partition("?")[0]
