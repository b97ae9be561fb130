"""How long a prompt and its answer may be: the engine's own limits, known before anything is sent."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from runner.protocol.engine import MOST_TOKENS
from shared.errors import EngineArchiveMalformed, InvalidArgument, PromptRequired, PromptTooLong

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from shared.artifact import EngineDirectory


@dataclass(frozen=True, slots=True)
class Limits:
    """Numbers of tokens."""

    sequence: int = MOST_TOKENS
    """Of prompt and answer together."""
    prompt: int = MOST_TOKENS - 1

    @classmethod
    def of(cls, kind: str, engine: EngineDirectory, arguments: Mapping[str, object]) -> Self:
        """The limits of an engine; `arguments` are those of `instantiate.server.tensorrt_llm`.

        Raises E4100 for an engine whose files do not say.
        """
        try:
            if kind == "tensorrt_llm":
                return cls._of_tensorrt_llm(_read(engine.engine_files / "config.json"), arguments)
            sequence = engine.config.get("max_seq_len")
            if sequence is None and kind == "ctranslate2":
                sequence = _read(engine.engine_files / "config.json")["max_position_embeddings"]
            return cls() if sequence is None else cls(int(sequence), int(sequence) - 1)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
            reason = f"the limits of the engine are not in its config.json: {problem!r}"
            raise EngineArchiveMalformed(reason=reason) from None

    @classmethod
    def _of_tensorrt_llm(cls, config: Mapping[str, Any], arguments: Mapping[str, object]) -> Self:
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
        return cls(sequence, prompt)

    def lowered(self, sequence: int | None) -> Self:
        """These limits, with at most so many tokens of prompt and answer together."""
        if sequence is None or sequence >= self.sequence:
            return self
        return replace(self, sequence=sequence, prompt=min(self.prompt, sequence - 1))

    def room(self, prompt_tokens: int, max_tokens: int) -> int:
        """`max_tokens`, or as many as the prompt leaves room for.

        Raises E1001 for a prompt without tokens, E1002 for one that is too long, E1104 for what no engine
        can count to.
        """
        if prompt_tokens == 0:
            raise PromptRequired
        if prompt_tokens > self.prompt:
            raise PromptTooLong(prompt_tokens=prompt_tokens, max_prompt_tokens=self.prompt)
        if max_tokens > MOST_TOKENS:
            raise InvalidArgument(
                argument="max_tokens", value=max_tokens, reason=f"the most is {MOST_TOKENS}"
            )
        return min(max_tokens, self.sequence - prompt_tokens)


def _read(path: Path) -> Any:
    return json.loads(path.read_bytes())
