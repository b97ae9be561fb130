"""A hub that is too slow, or never comes to an end, is abandoned."""

import time
from contextlib import contextmanager

import httpx2
import pytest
from huggingface_hub import constants

from builder.sources import hub_limits
from builder.sources.download import Download
from builder.sources.hub import HubModel
from builder.sources.parameters import parameters_of
from shared.errors import DownloadFailed
from shared.http import limits
from tests.support.hostile import Hostile, drips

DRIPS = {
    "a body": drips("HTTP/1.1 200 OK\nContent-Type: application/json\nContent-Length: 5000\n\n", b" "),
    "chunks": drips("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n", b"1\r\n \r\n"),
    "nothing": drips("", b""),
    "headers": drips("HTTP/1.1 200 OK\n", b"X-A: 1\r\n"),
    "interim answers": drips("", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
}


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch):
    monkeypatch.setattr(limits, "SILENCE_SECONDS", 0.3)
    monkeypatch.setattr(limits, "PACE_SECONDS", 0.3)
    monkeypatch.setattr(limits, "ANSWER_SECONDS", 1)
    monkeypatch.setattr(time, "sleep", lambda _: None)


def fetch(state):
    Download("someone/tiny").run(state, lambda _done, _total=None: None)


@contextmanager
def slow_hub(drip, monkeypatch):
    with Hostile(DRIPS[drip]) as server:
        url = server.url.partition("/a.tar")[0]
        monkeypatch.setattr(constants, "ENDPOINT", url)
        template = url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield


@pytest.mark.parametrize("drip", DRIPS)
def test_answers_of_the_hub_have_a_limit(drip, state, monkeypatch):
    with slow_hub(drip, monkeypatch), pytest.raises(DownloadFailed, match="did not answer in time"):
        fetch(state)


def test_a_check_waits_no_longer(monkeypatch):
    with slow_hub("nothing", monkeypatch), pytest.raises(httpx2.TimeoutException):
        parameters_of("someone/tiny", None, None)


def test_a_stored_file_that_never_comes(hub, state):
    with hub.holding(), pytest.raises(DownloadFailed, match="did not answer in time"):
        fetch(state)


@pytest.mark.parametrize("moved", ["", "/elsewhere"])
def test_a_list_without_an_end(hub, state, moved):
    """The library asked for the next page for ever, and not even Ctrl-C ended that."""
    hub.lists_end, hub.moved = False, moved
    with pytest.raises(DownloadFailed, match="has no end"):
        fetch(state)
    assert sum("/tree/" in request for request in hub.requests) <= 2 * hub_limits._MAX_PAGES


def test_each_list_may_have_its_pages(hub, state, monkeypatch):
    monkeypatch.setattr(hub_limits, "_MAX_PAGES", 3)
    for name in ("someone/tiny", "someone/other"):
        hub.repositories[name] = hub.repositories["someone/tiny"]
        hub.next_page = f"{hub.url}/api/models/{name}/tree/{hub.repositories[name].commit}"
        Download(name).run(state, lambda _done, _total=None: None)


@pytest.mark.parametrize("ask", [fetch, lambda _state: HubModel("someone/tiny", None, None).files()])
def test_an_answer_without_an_end(state, monkeypatch, ask):
    """It filled the memory."""
    monkeypatch.setattr(hub_limits, "_MAX_ANSWER", 100_000)
    monkeypatch.setitem(DRIPS, "much", drips("HTTP/1.1 200 OK\n\n", b" " * 10_000))
    with slow_hub("much", monkeypatch), pytest.raises(DownloadFailed, match="has no end"):
        ask(state)


def test_a_file_may_be_larger_than_an_answer(hub, state, monkeypatch):
    monkeypatch.setattr(hub_limits, "_MAX_ANSWER", 10_000)
    hub.claims["X-Linked-Etag"] = '"of-the-library"'  # so that the library fetches the large file
    fetch(state)
    assert (state.model.path / "model.safetensors").stat().st_size > 10_000
