"""The HTTP client for addresses that a client named: it connects only where `Addresses` allows.

Imported when it is first needed: to import the library takes longer than anything else at the start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2

from runner.front.addresses import origin_of

if TYPE_CHECKING:
    from runner.front.addresses import Addresses

_CONNECT_SECONDS = 10
_ANSWER_SECONDS = 30
_MOST_REDIRECTS = 5


class _Guarded(httpx2.AsyncHTTPTransport):
    """Connects to the IP address that was looked at; the name stays in `Host` and in TLS."""

    def __init__(self, addresses: Addresses) -> None:
        super().__init__(trust_env=False)
        self._addresses = addresses

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises E1326 for an address that nothing is sent to; a redirect leads here too."""
        ip = await self._addresses.resolve(origin_of(str(request.url)))
        guarded = httpx2.Request(
            request.method,
            request.url.copy_with(host=ip),
            headers=request.headers,
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": request.url.host},
        )
        return await super().handle_async_request(guarded)


def guarded_client(addresses: Addresses) -> httpx2.AsyncClient:
    """A client for one event loop; made in any thread."""
    return httpx2.AsyncClient(
        transport=_Guarded(addresses),
        timeout=httpx2.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS),
        follow_redirects=True,
        max_redirects=_MOST_REDIRECTS,
        trust_env=False,
    )
