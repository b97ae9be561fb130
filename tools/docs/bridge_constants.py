"""What the C sources of the engine bridge share with Python modules, as a header.

The texts of errors and the types of frames are in one place, and a module change that does not affect them
recompiles nothing.
"""

from __future__ import annotations

import re
import string
from dataclasses import fields

from runner.protocol import feed, frames, outputs, vllm
from runner.protocol.engine import FinishReason, Statistics
from shared import errors

_ERRORS = (
    errors.TritonUnavailable,
    errors.Overloaded,
    errors.EngineProcessDied,
    errors.EngineNotReady,
    errors.EngineGaveUp,
    errors.MalformedRequest,
    errors.BridgeMisconfigured,
    errors.EngineStartFailed,
    errors.HostsMissing,
)


def header() -> str:
    """What C and Python share, as C: every error text is a printf format whose fields are all `%s`."""
    numbers = {
        "PROTOCOL_VERSION": frames.PROTOCOL_VERSION,
        "ERROR_FINISH": outputs.ERROR_FINISH,
        "TEXT_FINISH": outputs.TEXT_FINISH,
        "CACHED_TOKENS": outputs.CACHED_TOKENS,
        "LOG_PROBS": outputs.LOG_PROBS,
        "NOT_FINISHED": FinishReason.NOT_FINISHED,
        "CANCELLED": FinishReason.CANCELLED,
        "STATISTICS_COUNT": len(fields(Statistics)),
        "LARGEST_REQUEST": feed.LARGEST_REQUEST,
        **{f"FRAME_{kind.name}": kind for kind in frames.FrameType},
        **{f"FEED_{kind.name}": kind for kind in feed.FeedFrame},
        **{f"INTERFACE_{interface.name}": interface for interface in frames.Interface},
        **{f"STATE_{state.name}": state for state in feed.EngineState},
    }
    lines = ["// Written by `make docs` from Python modules: do not edit.", "#pragma once"]
    lines += [*(f"#define {name} {int(number)}" for name, number in numbers.items())]
    names = {
        "FEED_PARAMETER": feed.FEED_PARAMETER,
        "GROUP_PARAMETER": feed.GROUP_PARAMETER,
        "PARAMETER_PREFIX": vllm.PARAMETER,
    }
    lines += [f'#define {name} "{text}"' for name, text in names.items()]
    lines += [f'#define {_macro_name(kind)} "{_printf_format(kind)}"' for kind in _ERRORS]
    return "\n".join(lines) + "\n"


def _macro_name(kind: type[errors.CogTritonError]) -> str:
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.name())
    return f"{kind.code}_{words.upper()}"


def _printf_format(kind: type[errors.CogTritonError]) -> str:
    text = f"{kind.code} {kind.name()}: {kind.message} {kind.remedy}".replace("%", "%%")
    fields = {field: "%s" for _, field, _, _ in string.Formatter().parse(text) if field}
    return text.format(**fields).replace("\\", "\\\\").replace('"', '\\"')
