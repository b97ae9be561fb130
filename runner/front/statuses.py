"""Which HTTP status a coded error has when it answers a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.errors import FixedBy

if TYPE_CHECKING:
    from shared.errors import CogTritonError

_RETRY_SECONDS = 2
_STATUSES = {
    "E1002": 400,
    "E1106": 404,
    "E1303": 404,
    "E1304": 401,
    "E1305": 429,
    "E1306": 404,
    "E1350": 404,
    "E1307": 405,
    "E1320": 413,
    "E1321": 400,
    "E1324": 404,
    "E1325": 409,
    "E1327": 503,
    "E1328": 408,
    "E1329": 431,
    "E1331": 400,
    "E1332": 404,
    "E1333": 400,
    "E1334": 400,
    "E1335": 413,
    "E1336": 415,
    "E1337": 415,
    "E1338": 503,
    "E1339": 503,
    "E1340": 403,
    "E1341": 404,
    "E1342": 400,
    "E1346": 421,
    "E1347": 403,
    "E1348": 429,
    "E2106": 429,
    "E2501": 429,
    "E2108": 503,
    # The engine or Triton is coming back, or gone.
    "E2105": 503,
    "E2400": 503,
    "E2401": 503,
    "E2402": 503,
    "E2214": 503,
}
_AGAIN = {429, 503}


def status_of(error: CogTritonError) -> int:
    """4xx if the sender can fix it, else 5xx."""
    return _STATUSES.get(error.code, 422 if error.fixed_by is FixedBy.USER else 500)


def is_busy(error: CogTritonError) -> bool:
    """Whether the same request may well be answered soon, here or by another runner."""
    return status_of(error) in _AGAIN


def retry_after(error: CogTritonError) -> tuple[tuple[bytes, bytes], ...]:
    """The header that says when to try again, if that may help."""
    return ((b"retry-after", b"%d" % _RETRY_SECONDS),) if is_busy(error) else ()
