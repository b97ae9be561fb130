"""The outputs of an engine step as bytes: what STEP and FEED_STEP frames hold.

`u32 count`, then for each output `u64 request_id`, `u8 finish`, `u8 extras`, `u32 n` and its data: n `i32`
tokens, or n bytes: UTF-8 for text and errors, or tensors. Then, depending on the bits of `extras`:
CACHED_TOKENS: `u32`; LOG_PROBS: `u8 k`, and for each token `f32` of the chosen one and k times `i32` token,
`f32`. Little-endian.

It is read and written for every engine step, so it must be cheap. Standard library only.
"""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, NamedTuple

from shared.errors import TritonUnknownError, from_text

from .engine import FinishReason, LogProbs, Output

if TYPE_CHECKING:
    from collections.abc import Sequence

ERROR_FINISH = 255
TEXT_FINISH = 128  # added to the finish reason of an output that is text
CACHED_TOKENS = 1
LOG_PROBS = 2

_COUNT = struct.Struct("<I")
_HEAD = struct.Struct("<QBBI")
_ONE_TOKEN = struct.Struct("<QBBIi")  # an output like most
_FLOAT = struct.Struct("<f")
_LIKELY = struct.Struct("<if")
_REASONS = tuple(FinishReason)
_TOKENS = tuple(struct.Struct(f"<{count}i") for count in range(17))


class TextOutput(NamedTuple):
    """An output of the engine, for a request of the interface TEXT."""

    request_id: int
    text: str
    finish_reason: FinishReason = FinishReason.NOT_FINISHED


class TensorsOutput(NamedTuple):
    """An output of the engine, for a request of the interface VLLM: tensors, as a REQUEST holds them."""

    request_id: int
    tensors: bytes
    finish_reason: FinishReason = FinishReason.NOT_FINISHED


def encode_outputs(outputs: Sequence[Output | TextOutput | TensorsOutput]) -> bytes:
    """The bytes of these outputs."""
    parts = [_COUNT.pack(len(outputs))]
    for output in outputs:
        extras = b""
        bits = 0
        if isinstance(output, TextOutput):
            data = output.text.encode()
            finish, count = TEXT_FINISH + output.finish_reason, len(data)
        elif isinstance(output, TensorsOutput):
            data = output.tensors
            finish, count = TEXT_FINISH + output.finish_reason, len(data)
        elif output.error is not None:
            data = str(output.error).encode()
            finish, count = ERROR_FINISH, len(data)
        else:
            tokens = output.tokens
            data = (tokens if isinstance(tokens, array) else array("i", tokens)).tobytes()
            finish, count = output.finish_reason, len(tokens)
            if output.cached_tokens is not None:
                bits |= CACHED_TOKENS
                extras = _COUNT.pack(output.cached_tokens)
            if output.log_probs:
                bits |= LOG_PROBS
                extras += _encode_log_probs(output.log_probs)
        parts += (_HEAD.pack(output.request_id, finish, bits, count), data, extras)
    return b"".join(parts)


def decode_outputs(data: bytes) -> Sequence[Output | TextOutput]:
    """The outputs in these bytes. Raises ValueError for invalid ones."""
    try:
        if len(data) == _COUNT.size + _COUNT.unpack_from(data)[0] * _ONE_TOKEN.size:
            single = _decode_single_tokens(data)
            if single is not None:
                return single
        outputs, end = _decode(data)
    except (struct.error, IndexError) as error:
        raise ValueError("the outputs of a step end too early, or end for an unknown reason") from error
    if end != len(data):
        raise ValueError("the outputs of a step end too early or too late")
    return outputs


def _decode_single_tokens(data: bytes) -> Sequence[Output] | None:
    """The outputs, if each has one token and nothing else, which takes half the time; else None."""
    outputs = []
    for request_id, finish, extras, count, token in _ONE_TOKEN.iter_unpack(memoryview(data)[_COUNT.size :]):
        if count != 1 or extras or finish >= TEXT_FINISH:
            return None
        outputs.append(Output(request_id, (token,), _REASONS[finish]))
    return outputs


def _decode(data: bytes) -> tuple[list[Output | TextOutput], int]:
    (count,) = _COUNT.unpack_from(data)
    at = _COUNT.size
    outputs: list[Output | TextOutput] = []
    for _ in range(count):
        request_id, finish, extras, size = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        if finish >= TEXT_FINISH:
            text = data[at : at + size].decode()
            at += size
            if finish == ERROR_FINISH:
                error = from_text(text) or TritonUnknownError(reason=text)
                outputs.append(Output(request_id, error=error))
            else:
                outputs.append(TextOutput(request_id, text, _REASONS[finish - TEXT_FINISH]))
            continue
        layout = _TOKENS[size] if size < len(_TOKENS) else struct.Struct(f"<{size}i")
        tokens = layout.unpack_from(data, at)
        at += layout.size
        if not extras:
            outputs.append(Output(request_id, tokens, _REASONS[finish]))
            continue
        cached_tokens = None
        log_probs: Sequence[LogProbs] = ()
        if extras & CACHED_TOKENS:
            (cached_tokens,) = _COUNT.unpack_from(data, at)
            at += _COUNT.size
        if extras & LOG_PROBS:
            log_probs, at = _decode_log_probs(data, at, size)
        outputs.append(Output(request_id, tokens, _REASONS[finish], None, log_probs, cached_tokens))
    return outputs, at


def _encode_log_probs(log_probs: Sequence[LogProbs]) -> bytes:
    most = max(len(position.likeliest) for position in log_probs)
    parts = [bytes([most])]
    for position in log_probs:
        parts.append(_FLOAT.pack(position.chosen))
        parts += (_LIKELY.pack(token, value) for token, value in position.likeliest)
        # Every position has the same number; what an engine left out is not a token.
        parts += [_LIKELY.pack(-1, 0.0)] * (most - len(position.likeliest))
    return b"".join(parts)


def _decode_log_probs(data: bytes, at: int, count: int) -> tuple[list[LogProbs], int]:
    most = data[at]
    at += 1
    log_probs = []
    for _ in range(count):
        (chosen,) = _FLOAT.unpack_from(data, at)
        at += _FLOAT.size
        likeliest = []
        for _ in range(most):
            token, value = _LIKELY.unpack_from(data, at)
            at += _LIKELY.size
            if token >= 0:
                likeliest.append((token, value))
        log_probs.append(LogProbs(chosen, likeliest))
    return log_probs, at
