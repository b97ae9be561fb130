"""A hub that is too slow is abandoned."""

import time
from contextlib import contextmanager

import httpx2
import pytest
from huggingface_hub import constants

from builder.sources.download import Download
from builder.sources.parameters import parameters_of
from shared.errors import DownloadFailed
from shared.http import limits
from tests.support.hostile import Hostile, drips

DRIPS = {
    "a body": drips("HTTP/1.1 200 OK\nContent-Type: application/json\nContent-Length: 5000\n\n", b" "),
    "chunks": drips("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n", b"1\r\n \r\n"),
    "nothing": drips("", b""),
}


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch):
    monkeypatch.setattr(limits, "SILENCE_SECONDS", 0.3)
    monkeypatch.setattr(limits, "PACE_SECONDS", 0.3)
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
