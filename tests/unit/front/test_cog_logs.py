"""What the work of a prediction says beside its output: in its view, in event streams and in webhooks."""

from __future__ import annotations

import asyncio
import json

from runner.front.cog import prediction
from runner.front.cog.prediction import Log, Prediction
from runner.front.cog.replay import Replay


class Text:
    def __init__(self, text: str) -> None:
        self.text = text


class Work:
    """Says and gives these."""

    finish_reason = None

    def __init__(self, *pieces: Log | Text) -> None:
        self._pieces = pieces

    async def __aiter__(self):
        for piece in self._pieces:
            await asyncio.sleep(0)
            yield piece

    def facts(self) -> dict[str, object]:
        return {}

    results = told = facts

    def cancel(self) -> None: ...

    def close(self) -> None: ...


def events_of(data: bytes) -> list[tuple[str, dict]]:
    blocks = data.decode().strip().split("\n\n")
    pairs = [block.split("\n") for block in blocks]
    return [(kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for kind, data in pairs]


WORK = (Log("a\n"), Text("x"), Log("b\n"), Text("y"))
SAID = [("log", {"data": "a\n", "source": "stderr"}), ("log", {"data": "b\n", "source": "stderr"})]


def test_it_is_in_the_events_between_the_text_and_in_the_view_at_the_end():
    sent = bytearray()

    async def send(data: bytes) -> None:
        sent.extend(data)

    asyncio.run(Prediction("p", {}).run(Work(*WORK), send))
    events = events_of(sent)
    assert [kind for kind, _ in events] == ["start", "log", "output", "log", "output", "completed"]
    assert [event for event in events if event[0] == "log"] == SAID
    assert events[-1][1]["logs"] == "a\nb\n"


def test_who_comes_later_hears_all_of_it():
    async def test():
        one = Prediction("p", {})
        early = Replay(one)
        hearing = asyncio.create_task(all_of(early))
        await one.run(Work(*WORK))
        return await hearing, await all_of(Replay(one))

    for sent in asyncio.run(test()):
        said = [data["data"] for kind, data in events_of(sent) if kind == "log"]
        assert "".join(said) == "a\nb\n"


async def all_of(replay: Replay) -> bytes:
    return b"".join([events async for events in replay])


def test_webhooks_are_told_that_something_was_said():
    one = Prediction("p", {})
    told: list[str] = []
    one.on_change.append(told.append)
    asyncio.run(one.run(Work(*WORK)))
    assert told == ["start", "logs", "output", "logs", "output", "completed"]


def test_only_the_last_of_it_is_kept(monkeypatch):
    monkeypatch.setattr(prediction, "_MAX_LOGS", 3)
    one = Prediction("p", {})
    asyncio.run(one.run(Work(*WORK)))
    assert one.view()["logs"] == "\nb\n"
    assert events_of(asyncio.run(all_of(Replay(one))))[1][1]["data"] == "\nb\n"
