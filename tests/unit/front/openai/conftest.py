"""OpenAI's API over HTTP, on a fake engine: token i is the word for 95 + i % 50."""

from __future__ import annotations

import asyncio

import httpx2
import pytest

from tests.support.front import serving

HI = [{"role": "user", "content": "10 20 30"}]
MODEL = "model"  # an engine without a manifest has no name


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


def events(text):
    """The contents of an event stream."""
    lines = text.split("\n\n")
    assert lines.pop() == ""
    assert all(line.startswith("data: ") for line in lines)
    return [line.removeprefix("data: ") for line in lines]


async def error_of(answer, status):
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error"}
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error
