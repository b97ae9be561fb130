"""Bodies of requests, which are JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.errors import ContentEncodingNotSupported, ContentTypeWrong
from shared.validation import visible

if TYPE_CHECKING:
    from runner.front.http import Request

_MAX_SHOWN = 80


async def json_body(request: Request) -> bytes:
    """The whole body. Raises ContentTypeWrong, ContentEncodingNotSupported and BodyTooLarge."""
    _check_json(request)
    return await request.body()


def _check_json(request: Request) -> None:
    """Raise ContentTypeWrong and ContentEncodingNotSupported for a body that is not sent as plain JSON.

    Browsers let any web page send text and forms to any server, but JSON only to one that allows it.
    """
    sent = request.header(b"content-type")
    kind = (sent or "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise ContentTypeWrong(sent="missing" if sent is None else visible(sent[:_MAX_SHOWN]))
    encoding = (request.header(b"content-encoding") or "").strip()
    if encoding.lower() not in ("", "identity"):
        raise ContentEncodingNotSupported(encoding=visible(encoding[:_MAX_SHOWN]))
