from math import inf

import pytest

from runner.front.openai.log_probs import ChatLogProbs, CompletionLogProbs, joined
from runner.protocol.engine import LogProbs
from runner.text.tokenizer import Tokenizer
from tests.support.words import word_tokenizer

TOKENS = (12, 345)
TOLD = (LogProbs(-0.5, ((12, -0.5), (13, -1.5))), LogProbs(-2.5, ((13, -inf),)))


@pytest.fixture
def tokenizer():
    """Every word but the first gets a space when it is written, which is not part of it here."""
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
        "text_offset": [0, 2],
    }


def test_of_a_chat_that_came_in_parts(tokenizer):
    parts = [ChatLogProbs(tokenizer).tell((token,), (one,)) for token, one in zip(TOKENS, TOLD, strict=True)]
    assert joined(parts) == ChatLogProbs(tokenizer).tell(TOKENS, TOLD)
