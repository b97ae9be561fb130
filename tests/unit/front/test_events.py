"""Event streams on the way: what splits, delays or ends them between the runner and its client."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import Any

import httpx2
import orjson
import pytest

from runner.front.cog.prediction import log_event, output_event
from runner.front.events import event_json
from runner.front.openai.answers import CHAT, COMPLETION, Answer, Events
from tests.support.front import EVENTS, serving

LINE_ENDS = "a\u2028b\u2029c\x85d\x0b\x0c\x1c\x1d\x1e\r\ne"
HANGS, FAILS, WORKS = "4", "3", "5"
COG = ("/predictions", lambda prompt: {"input": {"prompt": prompt, "max_tokens": 4}}, EVENTS)
COMPLETIONS = (
    "/v1/completions",
    lambda prompt: {"prompt": prompt, "max_tokens": 4, "stream": True},
    {},
)
CHATS = (
    "/v1/chat/completions",
    lambda prompt: {"messages": [{"role": "user", "content": prompt}], "max_tokens": 4, "stream": True},
    {},
)
APIS = pytest.mark.parametrize(("path", "body", "headers"), [COG, COMPLETIONS, CHATS])


@pytest.fixture
def run(engine_directory):
    """Run an asynchronous test against a front with these settings."""

    def run(test, **environment):
        async def go():
            async with (
                serving(engine_directory, **environment) as front,
                httpx2.AsyncClient(base_url=front.url) as http,
            ):
                await test(front, http)

        asyncio.run(asyncio.wait_for(go(), 30))

    return run


def in_unicode_lines(events: bytes) -> list[Any]:
    """The contents of events, read as httpx's `iter_lines` and Python's `splitlines` read them."""
    data = [line for line in events.decode().splitlines() if line.startswith("data: ")]
    assert len(data) == events.count(b"data: ")
    return [json.loads(line.removeprefix("data: ")) for line in data]


@pytest.mark.parametrize("form", [CHAT, COMPLETION])
def test_no_character_of_a_text_ends_a_line_of_an_event(form):
    """Clients that split at every line end of Unicode got halves of events: httpx's `iter_lines` does."""
    choice = Events(Answer.of(form, LINE_ENDS), include_usage=False).choice(0)
    log_probs = {"content": [{"token": LINE_ENDS}]}
    sent = (
        choice.step(LINE_ENDS) + choice.step(LINE_ENDS, log_probs) + choice.end("stop", LINE_ENDS, log_probs)
    )
    chunks = in_unicode_lines(sent)
    assert len(chunks) == 3
    for chunk in chunks:
        [content] = chunk["choices"]
        assert chunk["model"] == LINE_ENDS
        assert content.get("text", content.get("delta", {}).get("content")) == LINE_ENDS
    assert [chunk["choices"][0]["logprobs"] for chunk in chunks] == [None, log_probs, log_probs]


def test_no_character_of_a_text_ends_a_line_of_cogs_events():
    [output, log] = in_unicode_lines(output_event(0, LINE_ENDS) + log_event(LINE_ENDS))
    assert (output["chunk"], log["data"]) == (LINE_ENDS, LINE_ENDS)


def test_other_characters_are_not_escaped():
    for text in ("plain", "\u00c5\u0105\u2026\u2027\u202a\U0001f600", '"\\u2028\\'):
        assert event_json(text) == orjson.dumps(text)


@APIS
def test_headers_come_before_the_first_token(run, path, body, headers):
    """A client that waits for the first token of a long prompt saw no sign of life, and gave up."""

    async def test(_, http):
        began = time.monotonic()
        async with http.stream("POST", path, json=body(HANGS), headers=headers) as answer:
            assert answer.status_code == 200
            assert time.monotonic() - began < 5
            assert answer.headers["content-type"] == "text/event-stream"
            assert answer.headers["cache-control"] == "no-cache"
            assert answer.headers["x-accel-buffering"] == "no"

    run(test)


def test_what_the_engine_refuses_at_once_keeps_its_status(run):
    async def test(front, http):
        front.client.die()
        for path, body, headers in (COMPLETIONS, CHATS):
            answer = await http.post(path, json=body(WORKS), headers=headers)
            assert answer.status_code == 503
            assert answer.headers["content-type"] == "application/json"

    run(test)


@pytest.mark.parametrize("form", [COMPLETIONS, CHATS])
def test_an_error_after_the_headers_is_an_event(run, form):
    async def test(front, http):
        path, body, headers = form
        async with http.stream("POST", path, json=body(HANGS), headers=headers) as answer:
            assert answer.status_code == 200
            front.client.die()
            [event] = [line async for line in answer.aiter_lines() if line]
        assert json.loads(event.removeprefix("data: "))["error"]["code"] == "E2105"

    run(test)


def test_nothing_begins_before_the_engine_has_tried_a_structure(run):
    async def test(front, http):
        path, body, _ = COMPLETIONS
        sent = body(HANGS) | {"guided_regex": "a"}
        asked = asyncio.create_task(http.post(path, json=sent))
        await asyncio.sleep(0.5)
        front.client.die()
        assert (await asked).status_code == 503

    run(test)


@APIS
def test_a_comment_comes_while_nothing_else_does(run, path, body, headers):
    """Proxies end connections on which nothing comes, often after a minute."""

    async def test(_, http):
        received, began = b"", time.monotonic()
        async with http.stream("POST", path, json=body(HANGS), headers=headers) as answer:
            async for piece in answer.aiter_raw():
                received += piece
                if received.count(b":\n\n") == 3:
                    break
        assert received.endswith(b":\n\n:\n\n:\n\n")
        assert 0.55 < time.monotonic() - began < 5

    run(test, EVENT_KEEP_ALIVE="0.2")


@APIS
def test_no_comment_comes_between_tokens_or_after_the_end(run, path, body, headers):
    async def test(_, http):
        sent = body(WORKS)
        sent.get("input", sent)["max_tokens"] = 1000  # for a second at least
        answer = await http.post(path, json=sent, headers=headers)
        assert b":\n\n" not in answer.content
        await asyncio.sleep(1)
        assert (await http.get("/health/live")).status_code == 200  # on the same connection

    run(test, EVENT_KEEP_ALIVE="0.8")


def test_comments_can_be_turned_off(run):
    async def test(_, http):
        path, body, headers = COG
        received = []
        async with http.stream("POST", path, json=body(HANGS), headers=headers, timeout=1) as answer:
            with contextlib.suppress(httpx2.ReadTimeout):
                received += [piece async for piece in answer.aiter_raw()]
        assert b":\n\n" not in b"".join(received)

    run(test, EVENT_KEEP_ALIVE="0")


def test_the_last_event_with_text_says_why_it_ended(run):
    """As in vLLM: its clients look for `finish_reason` beside the last text."""

    async def test(_, http):
        for stop, reason, text in ((None, "length", "95 96 97 98"), ("97", "stop", "95 96 ")):
            for path, body, headers in (COMPLETIONS, CHATS):
                answer = await http.post(path, json=body(WORKS) | {"stop": stop}, headers=headers)
                *chunks, _ = answer.text.strip().split("\n\n")
                choices = [json.loads(chunk.removeprefix("data: "))["choices"][0] for chunk in chunks]
                texts = [one["text"] if "text" in one else one["delta"].get("content", "") for one in choices]
                assert "".join(texts) == text
                assert [one["finish_reason"] for one in choices][-1] == reason
                assert reason not in [one["finish_reason"] for one in choices][:-1]
                if reason == "length":
                    assert texts[-1]

    run(test)
