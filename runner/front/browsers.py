"""Which requests of browsers are answered: a browser sends what any web page tells it to.

A page of another origin may send simple requests anywhere, but reads no answer and sends no JSON unless the
server allows it (CORS). A page whose own name leads to this machine a moment later (DNS rebinding) may do
both: only the `Host` header gives it away.
"""

from __future__ import annotations

import re
import socket
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from shared.errors import CrossSiteRequest, HostNotAllowed, SettingInvalid
from shared.validation import visible

if TYPE_CHECKING:
    from runner.front.http import Header, Request
    from runner.settings import Settings

_ANY = "*"
_NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s]+")
_PORTS = {"http": ":80", "https": ":443"}
_HEALTH = "/health/"
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_SAME = frozenset({"same-origin", "none"})  # "none": the user did it, not a page
_MAX_SHOWN = 200
_PREFLIGHT_SECONDS = b"7200"
_VARY: Header = (b"vary", b"origin")
_EXPOSED: Header = (b"access-control-expose-headers", b"*")


class Browsers:
    """What one server answers. For one event loop."""

    def __init__(self, hosts: frozenset[str] | None = None, origins: frozenset[str] = frozenset()) -> None:
        """`hosts`: the names besides those of loopback that requests may be for, those that begin with a dot
        with all below them; None: any. `origins`: those whose pages may use the server.
        """
        self._hosts = None if hosts is None or _ANY in hosts else hosts
        self._origins = origins
        self._allowed = ""
        """The last `Host` that was allowed."""

    @classmethod
    def of(cls, settings: Settings, listener: socket.socket | None, *, keys: bool) -> Self:
        """As the settings say; `keys`: whether there are API keys, which no page of another origin has.

        Raises SettingInvalid.
        """
        hosts = _hosts(settings.allowed_hosts)
        checked = not keys and (bool(hosts) or (listener is not None and _is_on_loopback(listener)))
        return cls(hosts if checked else None, _origins(settings.cors_origins))

    def check(self, request: Request) -> None:
        """Raise HostNotAllowed and CrossSiteRequest. Let pages of allowed origins read the answer."""
        if self._hosts is not None and not request.path.startswith(_HEALTH):
            self._check_host(request)
        origin = None
        if self._origins:
            request.headers.append(_VARY)
            origin = request.header(b"origin")
            if origin in self._origins:
                request.headers += [(b"access-control-allow-origin", origin.encode()), _EXPOSED]
                return
        if request.method not in _READING and _is_cross_site(request):
            sent = origin or request.header(b"origin") or "unknown"
            raise CrossSiteRequest(origin=visible(sent[:_MAX_SHOWN]))

    def preflight(self, request: Request) -> list[Header] | None:
        """The answer to a browser that asks whether a page may send something; None if it is not answered."""
        if request.method != "OPTIONS" or not self._origins:
            return None
        method = request.header(b"access-control-request-method")
        if method is None or request.header(b"origin") not in self._origins:
            return None
        wanted = request.header(b"access-control-request-headers") or ""
        return [
            (b"access-control-allow-methods", b"GET, HEAD, POST, PUT, DELETE"),
            (b"access-control-allow-headers", wanted.encode("latin-1")),
            (b"access-control-max-age", _PREFLIGHT_SECONDS),
        ]

    def _check_host(self, request: Request) -> None:
        sent = request.header(b"host")
        if sent is None or sent == self._allowed:  # browsers always send one
            return
        name = _without_port(sent)
        if not (_is_loopback(name) or self._is_named(name)):
            raise HostNotAllowed(host=visible(sent[:_MAX_SHOWN]))
        self._allowed = sent

    def _is_named(self, name: str) -> bool:
        assert self._hosts is not None
        parts = name.split(".")
        above = {"." + ".".join(parts[first:]) for first in range(len(parts))}
        return name in self._hosts or not above.isdisjoint(self._hosts)


def _is_cross_site(request: Request) -> bool:
    """Whether a page of another origin sent it, and the browser did not ask before.

    The scheme is not compared: a proxy may have ended TLS.
    """
    site = request.header(b"sec-fetch-site")
    origin = request.header(b"origin")
    if site is not None:
        foreign = site not in _SAME
    elif origin is not None:
        host = _with_port(request.header(b"host") or "", origin)
        foreign = not host or _authority(origin) != host
    else:
        return False
    # No page can send a key without having asked.
    return foreign and not (request.header(b"authorization") or "").lower().startswith("bearer ")


def _authority(origin: str) -> str:
    """The host and the port of an origin; empty for one that has none, as `null`."""
    _, found, authority = origin.lower().partition("://")
    return _with_port(authority, origin) if found else ""


def _with_port(host: str, origin: str) -> str:
    """A host with its port, or with that of the origin's scheme."""
    host = host.strip().lower()
    has_port = ":" in host.rpartition("]")[2]
    return host if has_port else host + _PORTS.get(origin.lower().partition("://")[0], "")


def _without_port(host: str) -> str:
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].removesuffix(".")


def _is_loopback(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ip_address(name.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address
    return address.is_loopback


def _is_on_loopback(listener: socket.socket) -> bool:
    return listener.family in (socket.AF_INET, socket.AF_INET6) and _is_loopback(listener.getsockname()[0])


def _hosts(setting: str) -> frozenset[str]:
    """The names in ALLOWED_HOSTS. Raises SettingInvalid."""
    return frozenset(_host(one) for one in map(str.strip, setting.split(",")) if one)


def _host(written: str) -> str:
    if written == _ANY:
        return _ANY
    name = written.lower()
    dot = "." if name.startswith((".", "*.")) else ""
    if dot:
        name = name.removeprefix("*").removeprefix(dot)
    name = name.removeprefix("[").removesuffix("]").removesuffix(".")
    try:
        return dot + str(ip_address(name))
    except ValueError:
        pass
    try:
        name = name.encode("idna").decode()
    except UnicodeError:
        name = ""
    if not _NAME.fullmatch(name):
        reason = "each must be the name or address of a host, without scheme, port or path"
        raise SettingInvalid(setting="ALLOWED_HOSTS", value=written, reason=reason)
    return dot + name


def _origins(setting: str) -> frozenset[str]:
    """The origins in CORS_ORIGINS. Raises SettingInvalid."""
    return frozenset(_origin(one) for one in map(str.strip, setting.split(",")) if one)


def _origin(written: str) -> str:
    origin = written.lower().removesuffix("/")
    if origin == _ANY:
        reason = "it would let every web page use this server: name each origin"
        raise SettingInvalid(setting="CORS_ORIGINS", value=written, reason=reason)
    try:
        scheme = urlsplit(origin).scheme if _ORIGIN.fullmatch(origin) else ""
    except ValueError:  # half of the brackets around an IPv6 address
        scheme = ""
    if not scheme:
        reason = "each must be an origin, such as https://app.example.com"
        raise SettingInvalid(setting="CORS_ORIGINS", value=written, reason=reason)
    return origin.removesuffix(_PORTS.get(scheme, " "))
