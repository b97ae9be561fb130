"""Compressed archives: recognised by their first bytes, whatever their names, and read as their contents."""

from __future__ import annotations

import zlib
from gzip import BadGzipFile, GzipFile
from io import RawIOBase
from typing import TYPE_CHECKING

from backports.zstd import DecompressionParameter, ZstdError, ZstdFile

from shared.errors import EngineArchiveMalformed, EngineArchiveTooLarge

if TYPE_CHECKING:
    from .tar import Readable

_GZIP = b"\x1f\x8b"  # RFC 1952, 2.3.1
_ZSTANDARD = b"\x28\xb5\x2f\xfd"  # RFC 8878, 3.1.1
_MAX_RATIO = 100  # weights hardly ever shrink to half
_ANY_RATIO = 64 << 20  # bytes that may come out of any input, however small
_MAX_SILENCE = 8 << 20  # bytes that may go in while nothing comes out; a block of either form has less
_MAX_WINDOW_LOG = 27  # 128 MiB of memory: what `zstd --long` and `--ultra` need
_WINDOW_TOO_LARGE = "requires too much memory"  # its errors have no codes


def decompressed(stream: Readable) -> Readable:
    """What is in `stream` when that is gzip or Zstandard data, else the same bytes.

    Reading raises EngineArchiveMalformed for damaged data and for those that take too much memory, and
    EngineArchiveTooLarge when far more comes out than went in.
    """
    head = b""
    while len(head) < len(_ZSTANDARD) and (more := stream.read(len(_ZSTANDARD) - len(head))):
        head += more
    source = _Source(head, stream)
    if head.startswith(_GZIP):
        compressed = _Compressed(source)
        return _Decompressed(compressed, GzipFile(fileobj=compressed, mode="rb"), "gzip")
    if head == _ZSTANDARD:
        compressed = _Compressed(source)
        options: dict[int, int] = {DecompressionParameter.window_log_max: _MAX_WINDOW_LOG}
        return _Decompressed(compressed, ZstdFile(compressed, options=options), "Zstandard")
    return source


class _Source:
    """`head`, then the rest of `stream`."""

    def __init__(self, head: bytes, stream: Readable) -> None:
        self._head = head
        self._stream = stream

    def read(self, size: int, /) -> bytes | memoryview:
        if not self._head:
            return self._stream.read(size)
        head, self._head = self._head[:size], self._head[size:]
        return head


class _Compressed(RawIOBase):
    """What goes into a decompressor, counted."""

    def __init__(self, source: _Source) -> None:
        super().__init__()
        self._source = source
        self.count = 0
        self.told = 0
        """The count when something last came out."""

    def read(self, size: int = -1, /) -> bytes:
        """Raises EngineArchiveMalformed for empty parts without end, which take time alone."""
        some = bytes(self._source.read(size))
        self.count += len(some)
        if self.count - self.told > _MAX_SILENCE:
            raise EngineArchiveMalformed(reason=f"{_MAX_SILENCE >> 20} MiB of its data hold nothing")
        return some


class _Decompressed:
    """What comes out of it, up to a limit."""

    def __init__(self, compressed: _Compressed, contents: GzipFile | ZstdFile, form: str) -> None:
        self._compressed = compressed
        self._contents = contents
        self._form = form
        self._count = 0

    def read(self, size: int, /) -> bytes:
        try:
            some = self._contents.read(size)
        except EOFError:
            raise EngineArchiveMalformed(reason=f"its {self._form} data are cut short") from None
        except (BadGzipFile, zlib.error, ZstdError) as error:
            reason = f"its {self._form} data are damaged ({error})"
            if _WINDOW_TOO_LARGE in str(error):
                reason = (
                    f"its {self._form} data need a window of more than {(1 << _MAX_WINDOW_LOG) >> 20} MiB:"
                    f" compress it again with `zstd --long={_MAX_WINDOW_LOG}`, or without `--long`"
                )
            raise EngineArchiveMalformed(reason=reason) from None
        self._count += len(some)
        self._compressed.told = self._compressed.count
        if self._count > _ANY_RATIO + _MAX_RATIO * self._compressed.count:
            raise EngineArchiveTooLarge(limit=f"{_MAX_RATIO} times its compressed size")
        return some
