"""How long a prompt and its answer may be: the engine's own limits, known before anything is sent."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runner.protocol.engine import MOST_TOKENS, Limits
from shared.errors import EngineArchiveMalformed, InvalidArgument, PromptRequired, PromptTooLong

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from shared.artifact import EngineDirectory


UNLIMITED = Limits(MOST_TOKENS, MOST_TOKENS - 1)


def limits_of(kind: str, engine: EngineDirectory, arguments: Mapping[str, object]) -> Limits:
    """The limits of an engine; `arguments` are those of `instantiate.server.tensorrt_llm`.

    Raises E4100 for an engine whose files do not say.
    """
    try:
        if kind == "tensorrt_llm":
            return _of_tensorrt_llm(_read(engine.engine_files / "config.json"), arguments)
        sequence = engine.config.get("max_seq_len")
        if sequence is None and kind == "ctranslate2":
            sequence = _read(engine.engine_files / "config.json")["max_position_embeddings"]
        return UNLIMITED if sequence is None else Limits(int(sequence), int(sequence) - 1)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        reason = f"the limits of the engine are not in its config.json: {problem!r}"
        raise EngineArchiveMalformed(reason=reason) from None


def _of_tensorrt_llm(config: Mapping[str, Any], arguments: Mapping[str, object]) -> Limits:
    """As cpp/include/tensorrt_llm/batch_manager/trtGptModel.h works out its maximum input length.

    With the usual plugins, `max_input_len` of the build has no effect: `max_num_tokens` is the limit.
    """
    build = config["build_config"]
    plugins = build.get("plugin_config") or {}
    sequence = int(build["max_seq_len"])
    if str(arguments.get("enable_chunked_context")).lower() == "true":
        prompt = sequence - 1
    elif plugins.get("context_fmha", True) and plugins.get("remove_input_padding", True):
        prompt = min(sequence - 1, int(build["max_num_tokens"]))
    else:
        prompt = min(sequence - 1, int(build["max_input_len"]))
    return Limits(sequence, prompt)


def lowered(limits: Limits, sequence: int | None) -> Limits:
    """These limits, with at most so many tokens of prompt and answer together."""
    if sequence is None or sequence >= limits.sequence:
        return limits
    return replace(limits, sequence=sequence, prompt=min(limits.prompt, sequence - 1))


def room(limits: Limits, prompt_tokens: int, max_tokens: int | None) -> int:
    """`max_tokens`, or as many as the prompt leaves room for.

    Raises E1001 for a prompt without tokens, E1002 for one that is too long, E1104 for what no engine can
    count to.
    """
    if prompt_tokens == 0:
        raise PromptRequired
    if prompt_tokens > limits.prompt:
        raise PromptTooLong(prompt_tokens=prompt_tokens, max_prompt_tokens=limits.prompt)
    left = limits.sequence - prompt_tokens
    if max_tokens is None:
        return left
    if max_tokens > MOST_TOKENS:
        raise InvalidArgument(argument="max_tokens", value=max_tokens, reason=f"the most is {MOST_TOKENS}")
    return min(max_tokens, left)


def _read(path: Path) -> Any:
    return json.loads(path.read_bytes())
