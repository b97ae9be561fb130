import asyncio

from runner.front.turns import Turns


def test_a_burst_begins_a_few_at_a_time_in_order_and_the_dead_take_no_turn():
    async def burst():
        turns, order, passes = Turns(2), [], []

        async def begin(number):
            await turns.take()
            order.append(number)

        tasks = [asyncio.create_task(begin(number)) for number in range(7)]
        await asyncio.sleep(0)
        passes.append(len(order))
        tasks[2].cancel()
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            passes.append(len(order))
        return order, [after - before for before, after in zip([0, *passes], passes, strict=False)]

    order, begun = asyncio.run(burst())
    assert order == [0, 1, 3, 4, 5, 6]
    assert max(begun) == 2


def test_one_alone_does_not_wait():
    async def alone():
        turns, passed = Turns(1), []
        for _ in range(3):
            asyncio.get_running_loop().call_soon(passed.append, None)
            await turns.take()
            passed.append("taken")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return passed

    assert asyncio.run(alone()) == ["taken", None] * 3
