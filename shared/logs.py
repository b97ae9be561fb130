"""Logging for every process that is not an engine: one line per event on stderr, secrets masked."""

from __future__ import annotations

import io
import json
import logging
import os
import select
import stat
import sys
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

from shared.errors import SettingInvalid
from shared.log_lines import LINE_BYTES, lost_notice, shortened
from shared.log_pipe import stderr_is_terminal
from shared.log_rate import ClientRate, bind_client
from shared.secrets import names_secret
from shared.without import without

# rich takes longer to import than all the rest of a runner's logging, and its tracebacks are not shown.
with without("rich"):
    import structlog
    from structlog.contextvars import bind_contextvars

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor, WrappedLogger

__all__ = ["LEVELS", "bind_client", "bind_contextvars", "configure_logging", "get_logger", "register_secret"]

get_logger = structlog.get_logger
LEVELS = ("debug", "info", "warning", "error", "critical")
_MASK = "***"
# Their info lines contain whole addresses, including signed ones.
_HTTP_CLIENTS = ("httpx2", "httpcore2")
_MAX_ITEMS = 256  # of a value that holds several
_LENGTHS = (LINE_BYTES, 3072, 2048, 1024, 512, 256, 128, 64, 32)
"""How long each text of a line may be: the first with which the line is short enough."""
_ALWAYS = ("event", "level", "logger", "timestamp", "request_id", "key", "prediction_id")
_READ_AT_ITS_END = ("exception", "stack")  # there a traceback says what happened

_secrets: dict[int, set[str]] = {}  # by their lengths


def register_secret(value: str) -> None:
    """From now on, mask `value` wherever it appears in a line, also without the spaces around it."""
    if value := value.strip():
        _secrets.setdefault(len(value), set()).add(value)


def configure_logging(level: str | None = None) -> None:
    """Send structlog's and the standard library's events to stderr: JSON lines, or colours at a terminal.

    `level` is one of `LEVELS`; without it LOG_LEVEL applies, then info. May be called again: the last call
    applies. Raises `SettingInvalid` for an unknown level.
    """
    name = level or os.environ.get("LOG_LEVEL") or "info"
    if name.lower() not in LEVELS:
        raise SettingInvalid(setting="LOG_LEVEL", value=name, reason=f"it must be one of {', '.join(LEVELS)}")
    number = logging.getLevelNamesMapping()[name.upper()]
    before: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *before,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    handler = _Handler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=before,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                _mask_secrets,
                _within_line(_renderer()),
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=number, force=True)
    for client in _HTTP_CLIENTS:
        logging.getLogger(client).setLevel(max(number, logging.WARNING))


def _renderer() -> Processor:
    if stderr_is_terminal():
        # The default's rich tracebacks show local variables, and secrets with them.
        return structlog.dev.ConsoleRenderer(
            colors=not os.environ.get("NO_COLOR"), exception_formatter=structlog.dev.plain_traceback
        )
    return structlog.processors.JSONRenderer()


class _Handler(logging.Handler):
    """Writes lines to standard error. It waits for nobody: lines that are not taken at once are counted."""

    def __init__(self) -> None:
        super().__init__()
        self._rate = ClientRate(self.emit)
        self.addFilter(self._rate)
        self._lost = 0
        self._descriptor = -1
        self._takes = select.poll()
        # What Cog puts in its place knows which prediction a line belongs to.
        if isinstance(sys.stderr, io.TextIOWrapper):
            with suppress(OSError):  # what a test puts there has no descriptor
                self._descriptor = _own_description(sys.stderr.fileno())
                self._takes.register(self._descriptor, select.POLLOUT)

    def emit(self, record: logging.LogRecord) -> None:
        """As in the base class."""
        try:
            line = self.format(record).encode(errors="backslashreplace") + b"\n"
        except Exception:  # as the base class wants it: a line that cannot be made ends nothing
            self.handleError(record)
            return
        if self._descriptor < 0:
            sys.stderr.write(line.decode())
            return
        if self._lost and self._is_written(lost_notice(self._lost)):
            self._lost = 0
        if not self._is_written(line):
            self._lost += 1

    def close(self) -> None:
        """As in the base class."""
        self._rate.report()
        super().close()

    def _is_written(self, line: bytes) -> bool:
        try:
            if self._takes.poll(0):
                while line:
                    line = line[os.write(self._descriptor, line) :]
        except OSError:  # nobody reads it, or the disk is full
            pass
        return not line


def _own_description(descriptor: int) -> int:
    """The same file without waiting, if it is a pipe: others who share it go on as they are."""
    if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        with suppress(OSError):  # the pipe of another user
            return os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK)
    return descriptor


def _within_line(render: Processor) -> Processor:
    """`render`, with texts cut so that what it returns fits into a line."""

    def fits(text: object) -> bool:
        return len(str(text).encode(errors="backslashreplace")) < LINE_BYTES

    def rendered(logger: WrappedLogger, method: str, event: EventDict) -> Any:
        for length in _LENGTHS:
            line = render(logger, method, {key: _cut(key, value, length) for key, value in event.items()})
            if fits(line):
                return line
        few = {key: _cut(key, event[key], _LENGTHS[-1]) for key in _ALWAYS if key in event}
        return render(logger, method, {**few, "left_out": len(event) - len(few)})

    return rendered


def _cut(key: str, value: Any, length: int) -> Any:
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            missing = value.missing if isinstance(value, _Part) else 0
            return shortened(value, length, missing, keep_end=key in _READ_AT_ITS_END)
    if len(text := json.dumps(value)) <= length:
        return value
    return shortened(text, length)


class _Part(str):
    """The beginning or the end of a text, of which so many characters are missing."""

    __slots__ = ("missing",)
    missing: int


def _mask_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    return {key: _masked(key, value) for key, value in event.items()}


def _masked(key: str, value: Any) -> Any:
    """`value` without secrets; what JSON cannot hold becomes text first."""
    match value:
        case None | bool() | int() | float():
            return value
        case dict():
            masked = {
                _masked("", inner): _cut("", _masked(str(inner), one), LINE_BYTES)
                for inner, one in islice(value.items(), _MAX_ITEMS)
            }
            return masked if len(value) <= _MAX_ITEMS else {**masked, "left_out": len(value) - _MAX_ITEMS}
        case list() | tuple() | set() | frozenset():
            listed = [_cut("", _masked(key, one), LINE_BYTES) for one in islice(value, _MAX_ITEMS)]
            return listed if len(value) <= _MAX_ITEMS else [*listed, f"[{len(value) - _MAX_ITEMS} left out]"]
    if names_secret(key):
        return _MASK
    text = str(value)
    longest = max(_secrets, default=0)
    room = LINE_BYTES + longest
    if len(text) <= room:
        return _without_secrets(text)
    # No more is looked at than can be shown. The cut may go through a secret: what is as near to it as that
    # is long goes too.
    if key in _READ_AT_ITS_END:
        part = _Part(_without_secrets(text[-room:])[longest:])
    else:
        part = _Part(_without_secrets(text[:room])[: -longest or None])
    part.missing = len(text) - LINE_BYTES
    return part


def _without_secrets(text: str) -> str:
    # Longest first: one secret may contain another. There may be thousands: API keys.
    for length in sorted(_secrets, reverse=True):
        parts = {text[at : at + length] for at in range(len(text) - length + 1)}
        for secret in parts & _secrets[length]:
            text = text.replace(secret, _MASK)
    return text
