"""Who is let in when there are several API keys."""

import asyncio

import pytest

from runner.prediction.admission import Admission, Together
from shared.errors import KeyLimitReached, LimitTooLow, Overloaded, ShuttingDown


def run(test, **limits):
    async def go():
        await test(Admission(limits.pop("limit", 4), **limits))

    asyncio.run(asyncio.wait_for(go(), 10))


async def entering(admission, key):
    """A task that enters, and has come as far as it can."""
    task = asyncio.create_task(admission.enter(key))
    for _ in range(3):
        await asyncio.sleep(0)
    return task


def test_a_key_alone_may_have_everything():
    async def test(admission):
        for _ in range(4):
            await admission.enter("a")
        with pytest.raises(Overloaded):
            await admission.enter("a")

    run(test)


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        (1, "1 prediction is running or waiting already; "),
        (2, "2 predictions are running or waiting already; "),
    ],
)
def test_a_full_runner_says_how_many_it_has(limit, told):
    async def test(admission):
        for _ in range(limit):
            await admission.enter()
        with pytest.raises(Overloaded, match=f"^E2106 Overloaded: {told}no more are accepted"):
            await admission.enter()

    run(test, limit=limit)


def test_requests_of_a_key_are_limited_and_those_without_one_are_not():
    async def test(admission):
        tickets = [await admission.enter("a") for _ in range(2)]
        with pytest.raises(
            KeyLimitReached, match="your key would have 3 predictions in progress; its limit is 2"
        ):
            await admission.enter("a")
        await admission.enter("b")
        tickets[0].leave()
        await admission.enter("a")
        tickets[1].leave()
        for _ in range(2):
            await admission.enter("")

    run(test, key_requests=2)


@pytest.mark.parametrize(
    ("key", "most", "setting"), [("a", 2, "KEY_MAX_REQUESTS"), ("", 4, "MAX_PREDICTIONS")]
)
def test_a_request_for_more_predictions_than_there_may_be_is_not_begun(key, most, setting):
    """The first were generated, until there was no room for the next; clients did as they were told: again."""

    async def test(admission):
        admission.check(most, key)
        with pytest.raises(LimitTooLow, match=f"{most + 1} predictions; .* may have {most} .* {setting}"):
            admission.check(most + 1, key)
        with pytest.raises(
            LimitTooLow, match=setting
        ):  # the lowest: another would be met at the next attempt
            admission.check(100, key)

    run(test, key_requests=2)


def test_tokens_of_a_key_are_limited():
    async def test(admission):
        first, second = await admission.enter("a"), await admission.enter("a")
        first.hold(60)
        with pytest.raises(
            KeyLimitReached, match="your key would have 101 tokens in progress; its limit is 100"
        ):
            second.hold(41)
        for tokens, together in ((101, Together(1)), (51, Together(2)), (1, Together(1, tokens=100))):
            with pytest.raises(LimitTooLow):  # there is no use in coming back
                second.hold(tokens, together)
        second.leave()
        third = await admission.enter("a")
        third.hold(40)
        first.leave()
        (await admission.enter("a")).hold(60)
        (await admission.enter("")).hold(1000)

    run(test, key_tokens=100)


def test_a_key_below_its_share_waits_for_the_next_places_and_the_greedy_one_is_refused():
    async def test(admission):
        greedy = [await admission.enter("greedy") for _ in range(4)]
        shy = [await entering(admission, "shy") for _ in range(2)]
        assert not any(task.done() for task in shy)
        with pytest.raises(Overloaded):
            await admission.enter("shy")  # its share is two of four
        with pytest.raises(Overloaded):
            await admission.enter("greedy")
        for ticket, task in zip(greedy[:2], shy, strict=True):
            ticket.leave()
            await asyncio.sleep(0)
            assert task.done()
            with pytest.raises(Overloaded):
                await admission.enter("greedy")
        assert admission.count == 4
        for task in shy:
            task.result().leave()
        # While nobody else is there, it may have everything again.
        for _ in range(2):
            await admission.enter("greedy")

    run(test)


def test_places_go_to_the_key_that_has_fewest():
    async def test(admission):
        tickets = [await admission.enter("a") for _ in range(6)]
        for _ in range(1):
            await admission.enter("b")
        more_of_b = await entering(admission, "b")
        first_of_c = await entering(admission, "c")
        tickets[0].leave()
        await asyncio.sleep(0)
        assert (more_of_b.done(), first_of_c.done()) == (False, True)
        tickets[1].leave()
        await asyncio.sleep(0)
        assert more_of_b.done()

    run(test, limit=7)


def test_who_gives_up_waiting_takes_no_place():
    async def test(admission):
        tickets = [await admission.enter("a") for _ in range(4)]
        gone = await entering(admission, "b")
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        tickets[0].leave()
        await admission.enter("a")
        # One that gives up just as it is given a place gives it back.
        late = await entering(admission, "b")
        tickets[1].leave()
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)
        assert late.cancelled()
        assert admission.count == 3
        await admission.enter("a")

    run(test)


def test_nobody_waits_for_a_runner_that_shuts_down():
    async def test(admission):
        for _ in range(4):
            await admission.enter("a")
        waiting = await entering(admission, "b")
        drained = asyncio.create_task(admission.drain(0.01))
        with pytest.raises(ShuttingDown):
            await waiting
        with pytest.raises(ShuttingDown):
            await admission.enter("c")
        await drained

    run(test)


def test_more_keys_than_places():
    async def test(admission):
        first = await admission.enter("a")
        others = [await entering(admission, key) for key in "bcd"]
        tickets = [first]
        for task in others:
            tickets.pop().leave()
            tickets.append(await task)
        assert admission.count == 1

    run(test, limit=1)
