"""How reading over HTTP goes wrong, in words."""

from __future__ import annotations

from contextlib import contextmanager
from ssl import SSLCertVerificationError, SSLError
from typing import TYPE_CHECKING

from urllib3 import exceptions

from shared.tls import settings_problem, why_refused

if TYPE_CHECKING:
    from collections.abc import Iterator


class Unreachable(Exception):
    """It cannot be read; `reason` says why in a clause without an address, which may hold a signature."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Refused(exceptions.HTTPError):
    """The server answered, but not with what was asked for; `passing` says that another attempt may help."""

    def __init__(self, reason: str, *, passing: bool = False) -> None:
        super().__init__(reason)
        self.passing = passing


class TooSlow(exceptions.HTTPError):
    """The server sends less than `limits.SLOWEST`, over one connection or many."""


@contextmanager
def translated() -> Iterator[None]:
    """Turn what urllib3 and this package raise into `Unreachable`."""
    try:
        yield
    except exceptions.HTTPError as error:
        raise Unreachable(_reason(error)) from None


def is_passing(error: BaseException) -> bool:
    """Whether another attempt may succeed."""
    match error:
        case Refused():
            return error.passing
        case exceptions.SSLError():
            return not isinstance(error.args[0], SSLCertVerificationError)
        case _:
            return isinstance(
                error, exceptions.ProxyError | exceptions.ProtocolError | exceptions.TimeoutError | TooSlow
            )


def _reason(error: exceptions.HTTPError) -> str:
    match error:
        case exceptions.ProxySchemeUnknown():
            return "the proxy in the environment is neither http:// nor https://"
        case exceptions.LocationValueError():
            return "it is not a valid URL"
        case exceptions.NewConnectionError():
            cause = error.__cause__
            return f"no connection ({cause.strerror if isinstance(cause, OSError) else 'unknown reason'})"
        case exceptions.TimeoutError():
            return "the server did not answer in time"
        case TooSlow():
            return "the server sends too slowly"
        case exceptions.SSLError(args=(SSLError() as refused, *_)):
            return why_refused(refused)
        # A broken connection names no file.
        case exceptions.ProtocolError(args=(_, OSError(filename=str()))) if problem := settings_problem():
            return problem
        case exceptions.ProtocolError():
            return "the connection broke, or what arrived is not HTTP"
        case _:
            return str(error.args[0] if error.args else error).rstrip(".")
