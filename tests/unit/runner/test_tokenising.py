"""Prompts become the same tokens beside the event loop as in it."""

from __future__ import annotations

import asyncio
import time

import pytest
import tokenizers

from runner.prediction.tokenising import Tokenising
from runner.text.tokenizer import Tokenizer
from shared.errors import PromptTooLong, TritonTokenizerError

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
        tokenising = Tokenising(tokenizer, 10**9)
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
        tokenising = Tokenising(tokenizer, 10**9)
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
        tokenising = Tokenising(tokenizer, 10**9)
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
        tokenising = Tokenising(tokenizer, 10**9)
        tasks = [
            asyncio.create_task(tokenising.tokens_of("a b " * 1000, add_special_tokens=True))
            for _ in range(4)
        ]
        await asyncio.sleep(0)
        tokenising.close()
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)

    for one in asyncio.run(main()):
        assert isinstance(one, list | asyncio.CancelledError | RuntimeError)


class Recorded:
    """A tokenizer that cuts slowly, and tells what it has cut."""

    def __init__(self):
        self.cut = []

    def encode_all(self, texts, _longest, *, add_special_tokens):
        time.sleep(0.05)
        self.cut += texts
        return [[0]] * len(texts)


@pytest.mark.parametrize("length", [1000, 10_000, 500_000])
def test_texts_of_those_who_have_left_are_not_cut(length):
    """They waited in a thread's own queue, where nothing took them out."""
    recorded = Recorded()

    async def main():
        tokenising = Tokenising(recorded, 10**9)
        asked = [
            asyncio.create_task(tokenising.tokens_of("a" * length, "x", add_special_tokens=True))
            for _ in range(100)
        ]
        await asyncio.sleep(0.01)
        for task in asked:
            task.cancel()
        await tokenising.tokens_of("b" * length, "x", add_special_tokens=True)
        tokenising.close()

    asyncio.run(main())
    assert len(recorded.cut) <= 33  # those that were being cut, and the last
    assert recorded.cut[-1] == "b" * length


def test_nobody_waits_behind_all_the_long_texts_of_another():
    recorded = Recorded()

    async def main():
        tokenising = Tokenising(recorded, 10**9)
        greedy = [
            asyncio.create_task(tokenising.tokens_of("a" * 100_000, "greedy", add_special_tokens=True))
            for _ in range(20)
        ]
        await asyncio.sleep(0.01)
        await tokenising.tokens_of("b" * 100_000, "shy", add_special_tokens=True)
        ended = len(recorded.cut)
        for task in greedy:
            task.cancel()
        tokenising.close()
        return ended

    assert asyncio.run(main()) <= 6


def test_a_text_of_more_tokens_than_are_of_use_is_refused_before_they_are_listed(tokenizer):
    async def main():
        tokenising = Tokenising(tokenizer, 1000)
        try:
            with pytest.raises(PromptTooLong, match="has 10001 tokens; the maximum input length is 1000"):
                await tokenising.tokens_of("a " * 10_000, add_special_tokens=True)
        finally:
            tokenising.close()

    asyncio.run(main())
