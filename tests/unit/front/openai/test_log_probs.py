from math import inf

import pytest
from tokenizers import Tokenizer as Tokenizers
from tokenizers.decoders import ByteLevel
from tokenizers.models import BPE

from runner.front.openai.log_probs import ChatLogProbs, CompletionLogProbs, joined
from runner.protocol.engine import LogProbs
from runner.text import pieces
from runner.text.tokenizer import Tokenizer
from tests.support.words import word_tokenizer

TOKENS = (12, 345)
TOLD = (LogProbs(-0.5, ((12, -0.5), (13, -1.5))), LogProbs(-2.5, ((13, -inf),)))


@pytest.fixture
def tokenizer():
    """Every word but the first gets a space when it is written."""
    return Tokenizer(word_tokenizer())


def test_of_a_chat(tokenizer):
    def entry(word, value):
        return {"token": word, "logprob": value, "bytes": list(word.encode())}

    assert ChatLogProbs(tokenizer).tell(TOKENS, TOLD) == {
        "content": [
            entry(" 7", -0.5) | {"top_logprobs": [entry(" 7", -0.5), entry(" 8", -1.5)]},
            entry(" 340", -2.5) | {"top_logprobs": [entry(" 8", -9999.0)]},
        ],
        "refusal": None,
    }


def test_of_a_completion(tokenizer):
    teller = CompletionLogProbs(tokenizer)
    parts = [teller.tell(TOKENS[:1], TOLD[:1]), teller.tell(TOKENS[1:], TOLD[1:])]
    assert joined(parts) == {
        "tokens": [" 7", " 340"],
        "token_logprobs": [-0.5, -2.5],
        "top_logprobs": [{" 7": -0.5, " 8": -1.5}, {" 340": -2.5, " 8": -9999.0}],
        "text_offset": [0, 1],
    }


@pytest.fixture
def byte_tokenizer():
    """Token n is byte n; another one ends a text."""
    alphabet = sorted(pieces._BYTE_LEVEL_ALPHABET, key=pieces._BYTE_LEVEL_ALPHABET.get)
    vocabulary = {token: number for number, token in enumerate([*alphabet, "<end>"])}
    library_tokenizer = Tokenizers(BPE(vocabulary, []))
    library_tokenizer.decoder = ByteLevel()
    library_tokenizer.add_special_tokens(["<end>"])
    return Tokenizer(library_tokenizer)


def told_of(tokenizer, tokens, likeliest=()):
    teller = CompletionLogProbs(tokenizer)
    return joined([teller.tell((token,), (LogProbs(-0.5, likeliest),)) for token in tokens])


def test_of_a_completion_with_characters_of_several_tokens(byte_tokenizer):
    """With U+FFFD for each, their offsets were beyond the text."""
    tokens = [*"é🙂!".encode(), 256, *b"?"]
    text = byte_tokenizer.decode(tokens)
    told = told_of(byte_tokenizer, tokens)
    parts = [f"bytes:\\x{byte:02x}" for byte in "é🙂".encode()]
    assert told["tokens"] == [*parts, "!", "<end>", "?"]
    assert told["text_offset"] == [0, 0, 1, 1, 1, 1, 2, 3, 3]
    assert [text[offset] for offset in told["text_offset"]] == list("éé🙂🙂🙂🙂!??")


def test_of_a_completion_with_a_broken_character(byte_tokenizer):
    tokens = [0xC3, *b"ab"]
    assert byte_tokenizer.decode(tokens) == "\ufffdab"
    assert told_of(byte_tokenizer, tokens)["text_offset"] == [0, 1, 2]


def test_tokens_with_similar_spellings_keep_their_own_values(byte_tokenizer):
    """The chosen one had the value of another one."""
    told = told_of(byte_tokenizer, [0xF0], ((0xF0, -0.5), (0xE2, -3.0)))
    assert told["top_logprobs"] == [{"bytes:\\xf0": -0.5, "bytes:\\xe2": -3.0}]


def test_of_tokens_with_one_spelling_the_likeliest_counts(tokenizer):
    told = CompletionLogProbs(tokenizer).tell((12,), (LogProbs(-2.5, ((13, -0.5), (13, -1.5), (12, -9.0))),))
    assert told["top_logprobs"] == [{" 7": -2.5, " 8": -0.5}]


def test_of_a_chat_that_came_in_parts(tokenizer):
    parts = [ChatLogProbs(tokenizer).tell((token,), (one,)) for token, one in zip(TOKENS, TOLD, strict=True)]
    assert joined(parts) == ChatLogProbs(tokenizer).tell(TOKENS, TOLD)
