"""Which ended predictions are kept, and for how long."""

from __future__ import annotations

import asyncio

from runner.front.cog.prediction import Prediction
from runner.front.cog.replay import Replay
from runner.front.cog.store import Store


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def ended(store, name, *, inputs=None, output=()):
    prediction = Prediction(name, inputs or {})
    prediction.output += output
    store.add(prediction)
    store.ended(prediction, keep=True)
    return prediction


def test_the_last_ones_are_kept_for_a_while():
    store = Store(2, 10, clock := Clock())
    for name in "abc":
        ended(store, name)
    assert [store.find("", name) is not None for name in "abc"] == [False, True, True]
    clock.now = 10
    assert [store.find("", name) for name in "abc"] == [None] * 3


def test_large_ones_are_forgotten_before_they_fill_the_memory():
    store = Store(1000, 3600, Clock())
    for number in range(20):
        ended(store, f"large-{number}", inputs={"prompt": "x" * (16 << 20)})
    kept = [number for number in range(20) if store.find("", f"large-{number}") is not None]
    assert kept == [17, 18, 19]
    for number in range(20):
        ended(store, f"long-{number}", output=["\u0101" * (4 << 20)])
    assert store.find("", "large-19") is None
    assert store.find("", "long-19") is not None


def test_one_that_is_begun_again_leaves_its_room():
    store = Store(1000, 3600, Clock())
    first = ended(store, "small")
    for _ in range(20):
        ended(store, "again", inputs={"prompt": "x" * (16 << 20)})
    assert store.find("", "small") is first


def test_a_long_output_is_replayed_in_pieces():
    async def pieces():
        prediction = Prediction("long", {})
        prediction.output += ["word "] * 100_000
        prediction.status = "processing"
        replay = Replay(prediction)
        return [await anext(replay) for _ in range(1 + 100_000 // 512)]

    assert max(map(len, asyncio.run(pieces()))) < 1 << 16
