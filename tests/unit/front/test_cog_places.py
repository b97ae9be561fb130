"""Cog's HTTP API where there are more predictions than places."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx2
import pytest

from tests.support.front import ASYNC, EVENTS, running, wait_ended, words
from tests.support.waiting import wait_for

BRIEF = {"input": {"prompt": "a", "max_tokens": 3}}


class TestWaitingForAPlace:
    """With API keys, a prediction may wait for a place; it could be neither cancelled nor left, and had no answer."""

    @pytest.fixture
    def server(self, engine_directory):
        keys = {"API_KEYS": "sk-1,sk-2", "COG_API_NEEDS_KEY": "true"}
        with running(engine_directory, MAX_PREDICTIONS="2", **keys) as server:
            yield server

    @pytest.fixture
    def clients(self, server):
        with (
            httpx2.Client(base_url=server.url, headers={"Authorization": "Bearer sk-1"}) as first,
            httpx2.Client(base_url=server.url, headers={"Authorization": "Bearer sk-2"}) as second,
        ):
            body = {"input": {"prompt": "a", "max_tokens": 1_000_000}}
            for name in ("one", "two"):
                assert first.put(f"/predictions/{name}", json=body, headers=ASYNC).status_code == 202
            yield first, second
            with suppress(httpx2.TransportError):  # the server has ended
                for name in ("one", "two"):
                    first.post(f"/predictions/{name}/cancel")

    def nobody_waits(self, client):
        """Its share is one place: another one would be refused."""

        def accepted() -> bool:
            return client.put("/predictions/more", json=BRIEF, headers=ASYNC).status_code == 202

        wait_for(accepted, seconds=5)
        client.post("/predictions/more/cancel")
        assert wait_ended(client, "more")["status"] == "canceled"

    def test_it_is_accepted_and_runs_when_there_is_one(self, clients):
        first, second = clients
        answer = second.put("/predictions/x", json=BRIEF, headers=ASYNC, timeout=10)
        assert (answer.status_code, answer.json()["status"]) == (202, "starting")
        assert second.get("/predictions/x").json()["status"] == "starting"
        first.post("/predictions/one/cancel")
        assert wait_ended(second, "x")["status"] == "succeeded"

    def test_it_can_be_cancelled(self, clients):
        _, second = clients
        second.put("/predictions/x", json=BRIEF, headers=ASYNC)
        second.post("/predictions/x/cancel")
        assert wait_ended(second, "x")["status"] == "canceled"
        self.nobody_waits(second)

    @pytest.mark.parametrize("headers", [{}, EVENTS])
    def test_it_ends_when_its_client_leaves(self, clients, headers):
        _, second = clients
        with pytest.raises(httpx2.ReadTimeout):
            second.post("/predictions", json=BRIEF, headers=headers, timeout=0.3)
        self.nobody_waits(second)

    def test_its_waiting_request_is_answered_when_it_is_cancelled_by_another(self, clients):
        _, second = clients
        with ThreadPoolExecutor(1) as other:
            waiting = other.submit(
                httpx2.put,
                f"{second.base_url}/predictions/x",
                json=BRIEF,
                headers={"Authorization": "Bearer sk-2"},
                timeout=20,
            )
            while second.post("/predictions/x/cancel").status_code == 404 and not waiting.done():
                time.sleep(0.01)
            assert waiting.result().json()["status"] == "canceled"

    def test_who_follows_one_that_is_refused_in_the_end_is_told(self, server, clients):
        """The stream stayed open without an event, until the follower left or the front ended."""
        _, second = clients
        with ThreadPoolExecutor(1) as others:
            waiting = others.submit(second.put, "/predictions/x", json=BRIEF)
            while second.get("/predictions/x").status_code == 404:
                time.sleep(0.01)
            with second.stream("GET", "/predictions/x", headers=EVENTS) as answer:
                asyncio.run_coroutine_threadsafe(server.front.drain(0), server.loop)
                told = answer.read().decode()
            assert waiting.result().status_code == 503
            assert told.startswith('event: start\ndata: {"id":"x"')
            assert '\nevent: completed\ndata: {"error":"E2108 ShuttingDown: ' in told
            assert second.get("/predictions/x").status_code == 404


class TestFull:
    def test_one_more_than_fits_is_told_when_to_come_again(self, engine_directory):
        with (
            running(engine_directory, MAX_PREDICTIONS="1") as server,
            httpx2.Client(base_url=server.url) as client,
        ):
            client.put(
                "/predictions/first", json={"input": {"prompt": "a", "max_tokens": 10_000}}, headers=ASYNC
            )
            for headers in ({}, EVENTS, ASYNC):
                answer = client.post("/predictions", json=BRIEF, headers=headers)
                assert answer.status_code == 429
                assert answer.headers["retry-after"] == "2"
                assert answer.json()["error"].startswith("E2106 Overloaded: ")
            assert client.get("/health-check").json()["status"] == "BUSY"
            assert client.get("/health/ready").status_code == 200
            client.post("/predictions/first/cancel")

    def test_512_at_one_instant_are_all_taken(self, front):
        async def burst():
            limits = httpx2.Limits(max_connections=512)
            async with httpx2.AsyncClient(base_url=front.url, limits=limits, timeout=60) as client:
                body = {"input": {"prompt": "a", "max_tokens": 2}}
                return await asyncio.gather(*(client.post("/predictions", json=body) for _ in range(512)))

        assert {"".join(answer.json()["output"]) for answer in asyncio.run(burst())} == {words(2)}
