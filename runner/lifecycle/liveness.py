"""Whether an HTTP server answers at all: one that hangs is not seen otherwise."""

from __future__ import annotations

import asyncio
import contextlib

_INTERVAL_SECONDS = 1.0
_DEADLINE_SECONDS = 5.0
_MOST_FAILURES = 2


async def wait_until_hung(host: str, port: int, path: str, *, tls: bool) -> None:
    """Ask the server once a second; return when it has not answered twice, within 5 s each.

    Any answer counts, also one that refuses. Begin when it listens.
    """
    failures = 0
    while failures < _MOST_FAILURES:
        await asyncio.sleep(_INTERVAL_SECONDS)
        try:
            async with asyncio.timeout(_DEADLINE_SECONDS):
                answered = await _answers(host, port, path, tls=tls)
        except (OSError, TimeoutError):
            answered = False
        failures = 0 if answered else failures + 1


async def _answers(host: str, port: int, path: str, *, tls: bool) -> bool:
    reader, writer = await asyncio.open_connection(host, port, ssl=_trust_all() if tls else None)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        return (await reader.readline()).startswith(b"HTTP/")
    finally:
        with contextlib.suppress(OSError):
            writer.transport.abort()


def _trust_all() -> object:
    import ssl

    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # it is our own, on this machine
    return context
