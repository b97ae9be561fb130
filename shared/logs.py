"""Logging for every process that is not an engine: one line per event on stderr, secrets masked."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, Any

from shared.errors import SettingInvalid
from shared.secrets import names_secret
from shared.without import without

# rich takes longer to import than all the rest of a runner's logging, and its tracebacks are not shown.
with without("rich"):
    import structlog
    from structlog.contextvars import bind_contextvars

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor, WrappedLogger

__all__ = ["LEVELS", "bind_contextvars", "configure_logging", "get_logger", "register_secret"]

get_logger = structlog.get_logger
LEVELS = ("debug", "info", "warning", "error", "critical")
_MASK = "***"
# Their info lines contain whole addresses, including signed ones.
_HTTP_CLIENTS = ("httpx2", "httpcore2")

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
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=before,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                _mask_secrets,
                _renderer(),
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=number, force=True)
    for client in _HTTP_CLIENTS:
        logging.getLogger(client).setLevel(max(number, logging.WARNING))


def _renderer() -> Processor:
    if sys.stderr.isatty():
        # The default's rich tracebacks show local variables, and secrets with them.
        return structlog.dev.ConsoleRenderer(
            colors=not os.environ.get("NO_COLOR"), exception_formatter=structlog.dev.plain_traceback
        )
    return structlog.processors.JSONRenderer()


def _mask_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    return {key: _masked(key, value) for key, value in event.items()}


def _masked(key: str, value: Any) -> Any:
    """`value` without secrets; what JSON cannot hold becomes text first."""
    match value:
        case None | bool() | int() | float():
            return value
        case dict():
            return {_masked("", inner): _masked(str(inner), one) for inner, one in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_masked(key, one) for one in value]
    if names_secret(key):
        return _MASK
    text = str(value)
    # Longest first: one secret may contain another. There may be thousands: API keys.
    for length in sorted(_secrets, reverse=True):
        parts = {text[at : at + length] for at in range(len(text) - length + 1)}
        for secret in parts & _secrets[length]:
            text = text.replace(secret, _MASK)
    return text
