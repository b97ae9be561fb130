"""Whose work comes next."""

from __future__ import annotations

import asyncio

import pytest

from runner import fair_queue as module
from runner.fair_queue import FairQueue, Full, Shares


class Work:
    """What was asked of a queue, and in which order it began."""

    def __init__(self, **limits):
        self.queue = FairQueue(limits.pop("at_once", 1), **{"most": 100, "room": 1000, **limits})
        self.begun = []
        self.ends = {}
        self.tasks = {}

    async def ask(self, name, sender, size, cost=None):
        async def enter():
            self.ends[name] = await self.queue.enter(sender, size, cost)
            self.begun.append(name)

        self.tasks[name] = asyncio.create_task(enter())
        await settle()

    async def all_begun(self):
        """Let one after the other end."""
        for name in self.begun:  # it grows
            self.ends[name]()
            await settle()
        return self.begun


async def settle():
    for _ in range(3):
        await asyncio.sleep(0)


def run(test):
    return asyncio.run(asyncio.wait_for(test(), 10))


def test_what_fits_begins_at_once_and_what_is_larger_than_all_room_begins_alone():
    async def test():
        work = Work(at_once=10)
        await work.ask("a", "x", 4)
        await work.ask("b", "y", 6)
        await work.ask("large", "z", 50)
        assert work.begun == ["a", "b"]
        work.ends["a"]()
        await settle()
        assert work.begun == ["a", "b"]
        assert await work.all_begun() == ["a", "b", "large"]

    run(test)


def test_one_sender_with_much_work_keeps_nobody_waiting():
    async def test():
        work = Work()
        for number in range(5):
            await work.ask(f"greedy {number}", "greedy", 50)
        await work.ask("shy", "shy", 50)
        return await work.all_begun()

    assert run(test)[:3] == ["greedy 0", "greedy 1", "shy"]


def test_the_short_overtake_the_long_of_the_same_sender_but_not_for_ever(monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE", 1)

    async def test():
        work = Work()
        await work.ask("first", "x", 1)
        await work.ask("long", "x", 40)
        for number in range(9):
            await work.ask(f"short {number}", "x", 10)
            if number % 2:
                work.ends[work.begun[-1]]()
                await settle()
        return await work.all_begun()

    begun = run(test)
    assert begun[1] == "short 0"
    assert 2 < begun.index("long") < 9


def test_who_leaves_is_no_longer_in_the_way_and_gives_its_room_back():
    async def test():
        work = Work(room=100)
        await work.ask("first", "x", 10)
        await work.ask("gone", "x", 30)
        await work.ask("next", "y", 1)
        with pytest.raises(Full):
            await work.queue.enter("x", 20)
        work.tasks["gone"].cancel()
        await settle()
        await work.ask("more", "x", 20)
        return await work.all_begun()

    assert run(test) == ["first", "next", "more"]


def test_who_leaves_just_as_its_turn_comes_passes_it_on():
    async def test():
        work = Work()
        await work.ask("first", "x", 1)
        await work.ask("gone", "x", 1)
        await work.ask("next", "x", 1)
        work.ends["first"]()
        work.tasks["gone"].cancel()
        await settle()
        return work.begun

    assert run(test) == ["first", "next"]


def test_a_turn_ends_once():
    async def test():
        work = Work(at_once=2)
        for name in "abcd":
            await work.ask(name, "x", 1)
        work.ends["a"]()
        work.ends["a"]()
        await settle()
        return work.begun

    assert run(test) == ["a", "b", "c"]


def test_those_who_wait_when_it_is_closed_are_told():
    async def test():
        work = Work()
        await work.ask("first", "x", 1)
        await work.ask("second", "x", 1)
        work.queue.close(lambda: ValueError("closed"))
        await settle()
        with pytest.raises(ValueError, match="closed"):
            await work.tasks["second"]
        assert await work.all_begun() == ["first"]

    run(test)


def test_more_than_most_are_refused():
    async def test():
        work = Work(most=2)
        await work.ask("a", "x", 1)
        await work.ask("b", "y", 1)
        with pytest.raises(Full):
            await work.queue.enter("z", 1)

    run(test)


def test_no_sender_can_have_more_than_it_leaves_to_the_others():
    shares = Shares(100)
    shares.take("greedy", 50)
    with pytest.raises(Full):
        shares.take("greedy", 1)
    shares.take("shy", 25)
    with pytest.raises(Full):
        shares.take("shy", 1)
    shares.take("third", 10)
    shares.give_back("greedy", 50)
    shares.take("shy", 10)
