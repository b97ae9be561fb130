"""Where the runner may send something when a client gave the address.

An address on loopback, in a private network or of a cloud's metadata service would let a client reach what
only this machine can reach. So a host is resolved, each of its addresses is checked, and the connection goes
to an address that was checked; that holds for redirects too, and for names that resolve differently a moment
later. What the operator names is allowed wherever it is, and gets the token.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from runner.front.resolver import Resolver
from shared.errors import AddressRefused, SettingInvalid
from shared.logs import register_secret
from shared.resolving import written

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runner.settings import Settings

Origin = tuple[str, str, int]
_LONGEST = 8192  # characters
_MAX_SHOWN = 200
_PORTS = {"http": 80, "https": 443}
# IPv6: what is assigned, and what leads to the IPv4 address in the last four bytes.
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def origin_of(address: str) -> Origin:
    """Scheme, host and port. Raises ValueError for what is not an http or https address."""
    if not address.isprintable() or len(address) > _LONGEST:
        raise ValueError("it is too long, or has characters that an address cannot have")
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        raise ValueError("it is not a valid address") from None
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError("it is not an http or https address")
    return parts.scheme, parts.hostname, port or _PORTS[parts.scheme]


class Addresses:
    """What is allowed for one kind of address."""

    def __init__(self, named: Iterable[str], token: str | None, setting: str) -> None:
        """`named`: origins like https://example.com:8080, from the setting of that name.

        Raises ValueError for anything else.
        """
        self._named = frozenset(map(origin_of, named))
        self._token = token
        self._setting = setting
        self._resolver = Resolver()

    def close(self) -> None:
        """End what it holds."""
        self._resolver.close()

    def headers(self, address: str) -> dict[str, str]:
        """With the token, if the operator named the address."""
        if self._token and origin_of(address) in self._named:
            return {"authorization": f"Bearer {self._token}"}
        return {}

    async def check(self, address: str, sender: str) -> str:
        """An IP address of the host that may be connected to; `sender`: who named it.

        Raises AddressRefused when there is none.
        """
        try:
            origin = scheme, host, port = origin_of(address)
        except ValueError as error:
            raise self._refused(address, str(error)) from None
        shown = f"{scheme}://{written(host, port)}"
        try:
            candidates = await self._resolver.addresses(host, sender)
        except OSError as problem:  # also TimeoutError
            unknown = isinstance(problem, socket.gaierror) and problem.errno != socket.EAI_AGAIN
            reason = (
                "its name is unknown"
                if unknown
                else "its name cannot be looked up at the moment, but may be later"
            )
            raise self._refused(shown, reason) from None
        if origin not in self._named and not all(map(_is_public, candidates)):
            raise self._refused(shown, "it is on this machine or in a private network")
        return candidates[0]

    def _refused(self, address: str, reason: str) -> AddressRefused:
        return AddressRefused(address=address[:_MAX_SHOWN], reason=reason, setting=self._setting)


def _is_public(text: str) -> bool:
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        inner = (
            ipaddress.IPv4Address(address.packed[-4:])
            if address in _NAT64
            else address.ipv4_mapped or address.sixtofour
        )
        if inner is None and address not in _GLOBAL_UNICAST:
            return False
        address = inner or address
    return address.is_global and not address.is_multicast


def allowed_addresses(settings: Settings) -> Addresses:
    """The addresses that the settings name. Raises SettingInvalid."""
    named = [origin.strip() for origin in settings.webhook_allow.split(",") if origin.strip()]
    for one in named:
        try:
            origin_of(one)
        except ValueError as error:
            raise SettingInvalid(setting="WEBHOOK_ALLOW", value=one, reason=str(error)) from None
    return Addresses(named, _token(settings), "WEBHOOK_ALLOW")


def _token(settings: Settings) -> str | None:
    """WEBHOOK_AUTH_TOKEN without the end of a line, which a mounted file may have. Raises SettingInvalid."""
    if settings.webhook_auth_token is None:
        return None
    token = settings.webhook_auth_token.get_secret_value().strip()
    if not (token.isascii() and token.isprintable()):
        reason = "it must be printable ASCII, as it is sent in a header"
        raise SettingInvalid(setting="WEBHOOK_AUTH_TOKEN", value="***", reason=reason)
    if token:
        register_secret(token)
    return token
