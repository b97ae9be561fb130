"""From tekken.json: transformers converts it. The result is compared with tiktoken, which also divides the
texts in Mistral's own tokenizer.
"""

from __future__ import annotations

import json
import os
from base64 import b64encode
from typing import TYPE_CHECKING

from builder.model_json import read_object
from builder.tokenizer.made import Made
from builder.tokenizer.tekken import BOS, EOS, PADDING, TEKKEN, UNKNOWN, read_tekken
from shared.errors import TokenizerNotConverted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import tokenizers

    from builder.tokenizer.tekken import Tekken

_CONFIG = "tokenizer_config.json"
_NAMES = {"bos_token": BOS, "eos_token": EOS, "unk_token": UNKNOWN, "pad_token": PADDING}


def from_tekken(model: Path) -> Made:
    """Makes a tokenizer_config.json too, which names the special tokens: chat templates take them from there.

    Raises CheckpointInvalid, TokenizerNotConverted, and whatever the libraries raise.
    """
    tekken = read_tekken(model / TEKKEN)
    fast = _converted(tekken)
    names = {kind: token for kind, token in _NAMES.items() if token in tekken.special}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **names}
    if (model / _CONFIG).exists():
        config |= read_object(model / _CONFIG)
    files = {"tokenizer.json": fast.to_str(pretty=True), _CONFIG: json.dumps(config, indent=2) + "\n"}
    return Made(_Original(tekken), files)


class _Original:
    def __init__(self, tekken: Tekken) -> None:
        import tiktoken

        special = {token: id_ for id_, token in enumerate(tekken.special)}
        ranks = {token: id_ for id_, token in enumerate(tekken.tokens, len(special))}
        self.end = EOS if EOS in special else None
        self.ordinary: Sequence[int] = list(ranks.values())
        self._added = [special[BOS]] if BOS in special else []
        self._encoding = tiktoken.Encoding(
            TEKKEN, pat_str=tekken.pattern, mergeable_ranks=ranks, special_tokens=special
        )

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        ids: list[int] = self._encoding.encode(text, allowed_special="all")
        return [*self._added, *ids] if add_special_tokens else ids

    def decode(self, ids: Sequence[int]) -> str:
        decoded: str = self._encoding.decode([id_ for id_ in ids if id_ >= self.ordinary[0]])
        return decoded


def _converted(tekken: Tekken) -> tokenizers.Tokenizer:
    """Raises TokenizerNotConverted."""
    # Read when the libraries are imported or used: one gives no advice, the other keeps no copies.
    os.environ |= {"TRANSFORMERS_VERBOSITY": "error", "TIKTOKEN_CACHE_DIR": ""}
    from tokenizers import AddedToken, Regex, Tokenizer, processors
    from transformers.convert_slow_tokenizer import TikTokenConverter

    try:
        Regex(tekken.pattern)
    except Exception as error:  # the library raises no narrower type
        raise TokenizerNotConverted(reason=f"the pattern in {TEKKEN} is not valid ({error})") from None
    # The converter reads a file, which need not be on a disk.
    with open(os.memfd_create("ranks"), "wb") as ranks:  # noqa: PTH123 - it has no path
        ranks.writelines(b"%s %d\n" % (b64encode(token), rank) for rank, token in enumerate(tekken.tokens))
        ranks.flush()
        place = f"/proc/self/fd/{ranks.fileno()}"
        converter = TikTokenConverter(place, tekken.pattern, additional_special_tokens=())
        content = json.loads(converter.converted().to_str())
    # It would give the special ones the last ids.
    special = {token: id_ for id_, token in enumerate(tekken.special)}
    ordinary = {token: rank + len(special) for token, rank in content["model"]["vocab"].items()}
    content["model"]["vocab"] = special | ordinary
    made = Tokenizer.from_str(json.dumps(content))
    made.add_special_tokens([AddedToken(token, normalized=False) for token in tekken.special])
    if made.get_vocab_size() != len(special) + len(tekken.tokens):
        raise TokenizerNotConverted(reason=f"{TEKKEN} has an ordinary token with the text of a special one")
    if BOS in special:
        made.post_processor = processors.TemplateProcessing(
            single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[(BOS, special[BOS])]
        )
    return made
