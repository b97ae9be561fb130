"""Slots that senders share."""

from __future__ import annotations

import asyncio

from runner.front.slots import Slots


class Holders:
    """Who has a slot, in the order in which they got it."""

    def __init__(self, count):
        self.slots = Slots(count)
        self.got: list[str] = []
        self.tasks: dict[str, list[asyncio.Task[None]]] = {}

    async def add(self, sender, count=1):
        for _ in range(count):
            self.tasks.setdefault(sender, []).append(asyncio.create_task(self._hold(sender)))
        await asyncio.sleep(0)

    async def end(self, sender):
        task = self.tasks[sender].pop(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(0)

    def has(self, sender):
        return self.slots._senders[sender].held

    async def _hold(self, sender):
        async with self.slots.slot(sender):
            self.got.append(sender)
            await asyncio.Event().wait()


def test_one_has_a_quarter_at_most():
    async def main():
        holders = Holders(16)
        await holders.add("a", 40)
        assert holders.got == ["a"] * 4
        await holders.add("b")
        assert holders.got == ["a"] * 4 + ["b"]
        await holders.end("a")
        assert holders.got == ["a"] * 4 + ["b", "a"]

    asyncio.run(main())


def test_many_leave_one_for_whoever_comes_next():
    async def main():
        holders = Holders(16)
        for sender in "abcdefghijklmno":
            await holders.add(sender, 40)
        for sender in "abcdefghijklmno":
            while sum(map(holders.has, "abcdefghijklmno")) > 15 and holders.has(sender) > 1:
                await holders.end(sender)
        await holders.add("new", 40)
        assert holders.has("new") == 1

    asyncio.run(main())


def test_the_next_goes_to_who_has_the_fewest():
    async def main():
        holders = Holders(4)
        await holders.add("a", 3)
        for sender in "bcde":
            await holders.add(sender)
        assert holders.got == list("abcd")
        await holders.end("b")
        assert holders.got == list("abcde")

    asyncio.run(main())


def test_who_leaves_while_waiting_takes_nothing():
    async def main():
        holders = Holders(4)
        await holders.add("a", 3)
        waiting = holders.tasks["a"].pop()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await holders.end("a")
        assert holders.got == ["a", "a"]
        await holders.end("a")
        assert holders.slots._senders == {}
        assert holders.slots._free == 4

    asyncio.run(main())


def test_who_leaves_as_the_turn_comes_gives_it_back():
    async def main():
        slots = Slots(1)

        async def hold():
            async with slots.slot("a"):
                pass

        async with slots.slot("a"):
            task = asyncio.create_task(hold())
            await asyncio.sleep(0)
        task.cancel()  # it was given a turn just now
        await asyncio.gather(task, return_exceptions=True)
        assert slots._free == 1
        assert slots._senders == {}

    asyncio.run(main())
