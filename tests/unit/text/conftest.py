"""Small tokenizers with the decoders that language models use."""

from __future__ import annotations

import json

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors

from runner.text.tokenizer import Tokenizer

LETTERS = ["a", "b", "c", "é", "ST", "OP", "lo", "�", "日本"]


def numbered(tokens):
    return {token: number for number, token in enumerate(dict.fromkeys(tokens))}


def with_added_tokens(tokenizer):
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.add_tokens(["<tool é 日>", "  ", "�!"])
    return tokenizer


def byte_level():
    """GPT-2, Llama 3, Qwen."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(
        models.BPE(numbered([*alphabet, "Ġa", "ST", "OP", "Ġhello", "ðŁĺ", "Ģa", "ï¿½", "ï¿½ï"]), [])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return with_added_tokens(tokenizer)


def sentencepiece(*, strip):
    """Llama 2 and Mistral (strip) and Gemma (no strip)."""
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    words = ["▁", "▁▁", "▁a", "▁hello", "", "<0x1>", "<0xZZ>", "<0x+F>", "\n", *LETTERS]
    tokenizer = tokenizers.Tokenizer(models.BPE(numbered([*bytes_, *words]), [], byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    stages = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*stages, decoders.Strip(" ", 1, 0)] if strip else stages)
    return with_added_tokens(tokenizer)


def word_level(decoder=None, *, unknown="[UNK]"):
    words = [unknown, "", "##", "##b", "▁", "▁▁", "▁a", "b▁", ".", "'s", "a</w>", "|", *LETTERS]
    tokenizer = tokenizers.Tokenizer(models.WordLevel(numbered(words), unk_token=unknown))
    if decoder is not None:
        tokenizer.decoder = decoder
    return with_added_tokens(tokenizer)


LIBRARY_TOKENIZERS = {
    "byte-level": byte_level(),
    "llama": sentencepiece(strip=True),
    "gemma": sentencepiece(strip=False),
    "metaspace": word_level(decoders.Metaspace()),
    "metaspace-never": word_level(decoders.Metaspace(prepend_scheme="never")),
    "wordpiece": word_level(decoders.WordPiece()),
    "word-level": word_level(),
    "strip-a": word_level(decoders.Sequence([decoders.Fuse(), decoders.Strip("a", 2, 0)])),
    "bpe-suffix": word_level(decoders.BPEDecoder()),
    "ctc": word_level(decoders.CTC()),
}


@pytest.fixture(params=LIBRARY_TOKENIZERS, scope="session")
def any_tokenizer(request):
    return Tokenizer(LIBRARY_TOKENIZERS[request.param])


@pytest.fixture(scope="session")
def gpt():
    return Tokenizer(LIBRARY_TOKENIZERS["byte-level"])


@pytest.fixture(scope="session")
def llama():
    return Tokenizer(LIBRARY_TOKENIZERS["llama"])


@pytest.fixture(scope="session")
def ids_of():
    """The ids of tokens by name."""

    def ids_of(tokenizer, *tokens):
        found = [tokenizer._tokenizer.token_to_id(token) for token in tokens]
        assert None not in found
        return found

    return ids_of


@pytest.fixture
def write_model(tmp_path):
    """Write a directory as the model has it: the tokenizer `<s> </s> a b` and files given as JSON values."""

    def write(*, adds_bos=True, **files):
        tokenizer = tokenizers.Tokenizer(models.WordLevel({"a": 0, "b": 1, "[UNK]": 2}, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer.add_special_tokens(["<s>", "</s>", "<end>"])
        if adds_bos:
            tokenizer.post_processor = processors.TemplateProcessing(
                single="<s> $A", special_tokens=[("<s>", 3)]
            )
        tokenizer.save(str(tmp_path / "tokenizer.json"))
        for name, content in files.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(content))
        return tmp_path

    return write
