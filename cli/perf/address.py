"""Addresses as they are given, taken apart."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx2

from shared.errors import ServerNotMeasured
from shared.secrets import public_address

if TYPE_CHECKING:
    from urllib.parse import SplitResult

_SCHEMES = ("http", "https", "grpc")


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
    if not whole.isprintable():
        reason = "it has a character that cannot be seen, such as the end of a line"
        raise ServerNotMeasured(url=public_address(whole), reason=reason)
    if parts.scheme not in _SCHEMES:
        raise ServerNotMeasured(
            url=public_address(whole), reason="an address begins with http://, https:// or grpc://"
        )
    if "@" in parts.netloc and "://" not in url:  # what looks for secrets in a text would not find them
        reason = "an address with a user begins with http:// or https://"
        raise ServerNotMeasured(url=public_address(whole), reason=reason)
    if not parts.hostname:
        raise ServerNotMeasured(url=public_address(whole), reason="it names no host")
    try:
        query = httpx2.URL(whole).query.decode()  # as it can be sent: a space is %20
        parts.hostname.encode("idna")
    except (httpx2.InvalidURL, UnicodeError):
        raise ServerNotMeasured(url=public_address(whole), reason="no host has such a name") from None
    if parts.scheme == "grpc" and not parts.port:
        raise ServerNotMeasured(url=public_address(whole), reason="gRPC needs a port, such as 8001")
    if parts.scheme == "grpc" and "@" in parts.netloc:
        raise ServerNotMeasured(url=public_address(whole), reason="a grpc:// address has no user")
    if parts.scheme == "grpc" and query:
        raise ServerNotMeasured(url=public_address(whole), reason="a grpc:// address has no query")
    return parts._replace(query=query)
