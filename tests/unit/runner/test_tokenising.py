"""Prompts become the same tokens beside the event loop as in it."""

from __future__ import annotations

import asyncio

import pytest
import tokenizers

from runner.prediction.tokenising import Tokenising
from runner.text.tokenizer import Tokenizer
from shared.errors import TritonTokenizerError

LONG = 5000  # words: more than what is cut together with others


@pytest.fixture
def tokenizer(tmp_path):
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1, "<s>": 2}, unk_token="[UNK]"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 2)]
    )
    words.save(str(tmp_path / "tokenizer.json"))
    return Tokenizer.load(tmp_path)


def cut(tokenizer, *asked):
    """The tokens of each (text, add_special_tokens), or its error; all asked for at once."""

    async def main():
        tokenising = Tokenising(tokenizer)
        try:
            work = [tokenising.tokens_of(text, add_special_tokens=special) for text, special in asked]
            return await asyncio.gather(*work, return_exceptions=True)
        finally:
            tokenising.close()

    return asyncio.run(main())


def test_all_lengths_side_by_side(tokenizer):
    asked = [
        ("a b " * count, special)
        for count in (0, 1, 40, 100, 200, 500, LONG)
        for special in (True, False)
        for _ in range(3)
    ]
    expected = [tokenizer.encode(text, add_special_tokens=special) for text, special in asked]
    assert cut(tokenizer, *asked) == expected


@pytest.mark.parametrize("count", [200, LONG])
def test_a_text_without_tokens_fails_alone(tokenizer, count):
    good, bad = ("a b " * count, True), ("a c " * count, True)
    found = cut(tokenizer, good, bad, good)
    assert isinstance(found[1], TritonTokenizerError)
    assert found[0] == found[2] == tokenizer.encode(good[0])


def test_the_loop_goes_on_while_a_text_is_cut(tokenizer):
    async def main():
        tokenising = Tokenising(tokenizer)
        cutting = asyncio.create_task(tokenising.tokens_of("a b " * 500_000, add_special_tokens=True))
        turns = 0
        while not cutting.done():
            await asyncio.sleep(0.001)
            turns += 1
        tokenising.close()
        return turns, len(cutting.result())

    turns, count = asyncio.run(main())
    assert turns > 20
    assert count == 1_000_001


def test_who_leaves_while_its_text_is_cut_takes_nobody_along(tokenizer):
    async def main():
        tokenising = Tokenising(tokenizer)
        texts = ["a b " * 200] * 8
        tasks = [asyncio.create_task(tokenising.tokens_of(t, add_special_tokens=True)) for t in texts]
        await asyncio.sleep(0)
        tasks[0].cancel()
        tasks[5].cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        tokenising.close()
        return found

    found = asyncio.run(main())
    assert [isinstance(one, asyncio.CancelledError) for one in found] == [n in (0, 5) for n in range(8)]


def test_closing_cancels_those_who_wait(tokenizer):
    async def main():
        tokenising = Tokenising(tokenizer)
        tasks = [
            asyncio.create_task(tokenising.tokens_of("a b " * 1000, add_special_tokens=True))
            for _ in range(4)
        ]
        await asyncio.sleep(0)
        tokenising.close()
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)

    for one in asyncio.run(main()):
        assert isinstance(one, list | asyncio.CancelledError | RuntimeError)
