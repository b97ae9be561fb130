"""Read the config that a URL, a data URL or a path names. The text is not looked into here."""

from __future__ import annotations

import base64
import binascii
import re
import time
from pathlib import Path
from urllib.parse import unquote, unquote_to_bytes, urlsplit

import httpx2

from shared.errors import CogTritonError, ConfigNotYaml, ConfigTooLarge, ConfigUnreachable
from shared.secrets import public_address

MAX_CONFIG_BYTES = 1 << 20
_MAX_REDIRECTS = 5
_TIMEOUTS = httpx2.Timeout(10.0)  # s to connect, and between two reads
_DEADLINE = 60.0  # s for everything together
_SHOWN_LENGTH = 200
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=//|[^/\\])")


def read_config(source: str) -> str:
    """The text at `source`: an http(s), data: or file: URL, or a path; at most 1 MiB of UTF-8.

    Raises E3000 when it cannot be had, E3001 when it is too large, E3002 when it is not UTF-8.
    """
    content = _read(source)
    if len(content) > MAX_CONFIG_BYTES:
        raise ConfigTooLarge(source=shown(source), limit=MAX_CONFIG_BYTES)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigNotYaml(source=shown(source), reason=f"byte {error.start} is not UTF-8") from None


def folder_of(source: str) -> Path | None:
    """The folder that the paths in the config at `source` count from; None for one that is not in a file."""
    match _scheme(source):
        case "":
            return Path(source).absolute().parent
        case "file":
            return Path(unquote(urlsplit(source).path)).parent
        case _:
            return None


def shown(source: str) -> str:
    """`source` as errors and logs may show it: no credentials, no query, no inline content."""
    if _scheme(source) == "data":
        return "(data: URL)"
    try:
        source = public_address(source)
    except ValueError:
        return "(URL)"
    return source if len(source) <= _SHOWN_LENGTH else f"{source[:_SHOWN_LENGTH]}..."


def _scheme(source: str) -> str:
    found = _SCHEME.match(source)
    return found[1].lower() if found else ""


def _read(source: str) -> bytes:
    """Up to one byte more than a config may have."""
    match _scheme(source):
        case "":
            return _read_file(source, Path(source))
        case "file":
            parts = urlsplit(source)
            if parts.netloc not in {"", "localhost"}:
                raise ConfigUnreachable(source=shown(source), reason="file: URLs name files of this machine")
            return _read_file(source, Path(unquote(parts.path)))
        case "data":
            return _read_data_url(source)
        case "http" | "https":
            return _fetch(source)
        case other:
            raise ConfigUnreachable(source=shown(source), reason=f"{other}: is not supported")


def _read_file(source: str, path: Path) -> bytes:
    try:
        if not path.is_file():
            raise ConfigUnreachable(source=shown(source), reason="there is no such file")
        with path.open("rb") as file:
            return file.read(MAX_CONFIG_BYTES + 1)
    except OSError as error:
        raise ConfigUnreachable(source=shown(source), reason=error.strerror) from None


def _read_data_url(source: str) -> bytes:
    """Decode `data:[media type][;base64],content` (RFC 2397)."""
    header, comma, content = source.partition(",")
    if not comma:
        raise ConfigUnreachable(source=shown(source), reason="it has no comma before its content")
    raw = unquote_to_bytes(content)
    if not header.lower().endswith(";base64"):
        return raw
    try:
        return base64.b64decode(raw, validate=True)
    except binascii.Error:
        raise ConfigUnreachable(source=shown(source), reason="its content is not base64") from None


def _fetch(source: str) -> bytes:
    deadline = time.monotonic() + _DEADLINE
    address = source
    try:
        with httpx2.Client(timeout=_TIMEOUTS) as client:
            for _ in range(_MAX_REDIRECTS + 1):
                with client.stream("GET", address) as response:
                    if response.next_request is None:
                        return _body(source, response, deadline)
                    address = str(response.next_request.url)
                if _scheme(address) not in {"http", "https"}:
                    raise ConfigUnreachable(source=shown(source), reason="it redirects to another protocol")
        raise ConfigUnreachable(source=shown(source), reason=f"more than {_MAX_REDIRECTS} redirects")
    except CogTritonError:
        raise
    except httpx2.TimeoutException:
        raise ConfigUnreachable(source=shown(source), reason="the server did not answer in time") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        raise ConfigUnreachable(source=shown(source), reason=_transport_reason(error)) from None


def _body(source: str, response: httpx2.Response, deadline: float) -> bytes:
    if response.status_code != httpx2.codes.OK:
        raise ConfigUnreachable(source=shown(source), reason=f"the server answered {response.status_code}")
    content = bytearray()
    for chunk in response.iter_bytes():
        content += chunk
        if len(content) > MAX_CONFIG_BYTES:
            break
        if time.monotonic() > deadline:
            raise ConfigUnreachable(source=shown(source), reason=f"it took more than {_DEADLINE:g} s")
    return bytes(content)


def _transport_reason(error: Exception) -> str:
    if isinstance(error, httpx2.ConnectError):
        return "no connection to the server"
    if isinstance(error, httpx2.UnsupportedProtocol | httpx2.InvalidURL):
        return "that is not a valid address"
    return f"the transfer broke ({type(error).__name__})"
