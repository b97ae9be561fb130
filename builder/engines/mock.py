"""The mock engine: the tokens it answers with, and a tokenizer whose text consists of numbers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from shared.errors import CheckpointInvalid

if TYPE_CHECKING:
    from pathlib import Path

    from builder.step import Build
    from shared.progress import StepProgress

_WORDS = 10_000
_FAULTS = ("crash", "error", "hang")
_SPEEDS = ("tokens_per_second", "time_to_first_token_ms")
_TRIGGERS = (*_FAULTS, *_SPEEDS)
_SPECIAL = ("<unk>", "</s>", *(f"<{name}>" for name in _FAULTS))


@dataclass(frozen=True, slots=True)
class MakeMock:
    """Write engine/mock.json, and tokenizer/ unless `Build.model` has one.

    runner/engines/mock.py explains mock.json.
    """

    name: ClassVar[str] = "mock"

    def run(self, build: Build, progress: StepProgress) -> None:  # noqa: ARG002 - over at once
        """Raises CheckpointInvalid when the tokenizer of the model cannot be used."""
        if build.model is None:
            tokenizer = counting_tokenizer()
            build.tokenizer_dir.mkdir()
            # The library's own `save` hides what a full disk raises.
            text = tokenizer.to_str(pretty=True)
            (build.tokenizer_dir / "tokenizer.json").write_text(text, encoding="utf-8")
            _write(build.tokenizer_dir / "tokenizer_config.json", {"eos_token": "</s>", "unk_token": "<unk>"})
            _write(build.tokenizer_dir / "generation_config.json", {"eos_token_id": _SPECIAL.index("</s>")})
        else:
            tokenizer = _loaded(build.model.path / "tokenizer.json")
        ordinary = _longest_range(tokenizer)
        build.engine_dir.mkdir()
        _write(
            build.engine_dir / "mock.json",
            {
                "first_token_id": ordinary.start,
                "token_count": len(ordinary),
                **{f"{name}_id": tokenizer.token_to_id(f"<{name}>") for name in _TRIGGERS},
            },
        )


def counting_tokenizer() -> Tokenizer:
    """One token for each word: `0` to `9999`, the special ones, and `<unk>` for every other word."""
    speeds = [f"<{name}>" for name in _SPEEDS]
    words = [*_SPECIAL, *(str(number) for number in range(_WORDS)), *speeds]
    tokenizer = Tokenizer(WordLevel({word: id_ for id_, word in enumerate(words)}, unk_token=_SPECIAL[0]))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in (*_SPECIAL, *speeds)])
    return tokenizer


def _loaded(path: Path) -> Tokenizer:
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises no narrower type
        raise CheckpointInvalid(reason=f"tokenizer.json: {error}") from None


def _longest_range(tokenizer: Tokenizer) -> range:
    """The longest run of ids without any of the added tokens, which would vanish from the text."""
    added = tokenizer.get_added_tokens_decoder().keys()
    ids = set(tokenizer.get_vocab().values()) - added
    longest = run = range(0)
    for id_ in sorted(ids):
        run = range(run.start if id_ == run.stop and run else id_, id_ + 1)
        longest = max(longest, run, key=len)
    if not longest:
        raise CheckpointInvalid(reason="tokenizer.json: it has no ordinary tokens")
    return longest


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
