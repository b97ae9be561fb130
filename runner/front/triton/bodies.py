"""A request's body, as Triton may get it: whole, decompressed, and of JSON that it can parse.

Triton parses JSON by recursion, and keeps each chunk of a body apart: nested or cut up enough, a body
overflows its stack. It believes the shapes of tensors before it has counted what is there.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from math import prod
from typing import TYPE_CHECKING, Any

import orjson

from runner.front.bodies import MAX_VALUES
from shared.errors import BodyTooLarge, ContentEncodingNotSupported, TooManyValues, TritonBodyInvalid

if TYPE_CHECKING:
    from runner.front.bodies import Counted
    from runner.front.http import Request

LARGEST = 64 << 20
"""More is not forwarded, whatever the settings say: Triton holds a body in pieces of 4 KiB."""
JSON_LENGTH = b"inference-header-content-length"
"""The header with the number of bytes of JSON, which binary tensors follow."""
_DIGITS = re.compile(r"[0-9]{1,10}")
_COMPRESSED = ("gzip", "deflate")
_ANY_ZLIB = zlib.MAX_WBITS | 32  # gzip or zlib, whichever it is


def _encoding_of(request: Request) -> str | None:
    """How the body is compressed; None if it is not. Raises ContentEncodingNotSupported."""
    encoding = (request.header(b"content-encoding") or "identity").strip().lower()
    if encoding == "identity":
        return None
    if encoding not in _COMPRESSED:
        raise ContentEncodingNotSupported(encoding=encoding)
    return encoding


async def read_body(request: Request, counted: Counted) -> bytes:
    """The whole body, decompressed.

    Raises BodyTooLarge, BodiesTooLarge, ContentEncodingNotSupported and TritonBodyInvalid.
    """
    encoding = _encoding_of(request)
    body = await request.body(lambda piece: counted.hold(len(piece)))
    if encoding is None:
        return body
    counted.hold(request.limit)
    return await asyncio.to_thread(_decompressed, body, encoding, request.limit)


def json_length(request: Request, body: bytes) -> int | None:
    """How many bytes of the body are JSON, before binary tensors; None where all of it is.

    Raises TritonBodyInvalid.
    """
    text = request.header(JSON_LENGTH)
    if text is None:
        return None
    if not _DIGITS.fullmatch(text) or int(text) > len(body):
        raise TritonBodyInvalid(reason="its Inference-Header-Content-Length is no part of its length")
    return int(text)


def _decompressed(body: bytes, encoding: str, limit: int) -> bytes:
    decompressor = zlib.decompressobj(_ANY_ZLIB)
    try:
        data = decompressor.decompress(body, limit + 1)
    except zlib.error:
        raise TritonBodyInvalid(reason=f"it is not {encoding}") from None
    if len(data) > limit:
        raise BodyTooLarge(limit=limit)
    if not decompressor.eof or decompressor.unused_data:
        raise TritonBodyInvalid(reason=f"it is not {encoding}")
    return data


def check_json(body: bytes, length: int | None = None) -> None:
    """Raise TooManyValues, and TritonBodyInvalid for what is not JSON, or not JSON that Triton should get.

    `length`: of the JSON, if tensors follow it. orjson takes 1,024 levels, which Triton can parse too.
    """
    text = body if length is None else body[:length]
    if not text:
        return
    values = sum(text.count(mark) for mark in (b"[", b"{", b",", b":"))
    if values > MAX_VALUES:
        raise TooManyValues(limit=MAX_VALUES)
    try:
        content = orjson.loads(text)
    except orjson.JSONDecodeError as problem:
        raise TritonBodyInvalid(reason=f"its JSON cannot be parsed: {problem}") from None
    _check_shapes(content, values + len(body) - len(text))


def _check_shapes(content: Any, most: int) -> None:
    """Raise TritonBodyInvalid for a tensor of more elements than are there: Triton makes room for all."""
    tensors = content.get("inputs") if isinstance(content, dict) else None
    for tensor in tensors if isinstance(tensors, list) else ():
        shape = tensor.get("shape") if isinstance(tensor, dict) else None
        sizes = shape if isinstance(shape, list) else [shape]
        if prod(size for size in sizes if isinstance(size, int | float)) > most:
            raise TritonBodyInvalid(reason="a tensor's shape has more elements than the body")
