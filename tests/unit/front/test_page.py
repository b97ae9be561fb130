"""What browsers get at `/`, and what the page learns about the runner. tests/page tries it in a browser."""

from collections import Counter

import httpx2
import pytest

from runner.front.page.history import SECONDS, History
from runner.metrics import Metrics
from runner.prediction.admission import Admission
from runner.protocol.engine import Statistics
from shared.errors import ApiKeyInvalid, EngineProcessDied, PromptRequired
from tests.support.fake_engine_client import FakeEngineClient
from tests.support.front import running

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def test_browsers_get_the_page_and_others_cogs_index(front):
    page = httpx2.get(front.url, headers=BROWSER)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "<!doctype html>" in page.text
    head = httpx2.head(front.url, headers=BROWSER)
    assert head.headers["content-length"] == page.headers["content-length"]
    for accept in ("*/*", "application/json"):
        other = httpx2.get(front.url, headers={"accept": accept})
        assert other.json()["predictions_url"] == "/predictions"
        assert page.headers["vary"] == other.headers["vary"] == "accept"


@pytest.mark.parametrize(
    ("path", "kind"),
    [("main.js", "text/javascript"), ("page.css", "text/css"), ("icon.svg", "image/svg+xml")],
)
def test_it_takes_nothing_but_its_own_files(front, path, kind):
    answer = httpx2.get(f"{front.url}/page/{path}")
    assert answer.headers["content-type"] == f"{kind}; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy


@pytest.mark.parametrize("path", ["index.html", "page.py", "..%2fpage.py", "%2e%2e/page.py"])
def test_there_are_no_others(front, path):
    assert httpx2.get(f"{front.url}/page/{path}").status_code == 404


def test_a_setting_turns_it_off(engine_directory):
    with running(engine_directory, WEB_PAGE="false") as front:
        assert httpx2.get(front.url, headers=BROWSER).json()["predictions_url"] == "/predictions"
        assert httpx2.get(f"{front.url}/page/status").status_code == 404


def test_how_the_runner_is_needs_the_key_of_metrics(engine_directory, answered):
    with running(engine_directory, API_KEYS="secret", METRICS_NEED_KEY="true") as front:
        assert httpx2.get(front.url, headers=BROWSER).status_code == 200
        refused = httpx2.get(f"{front.url}/page/status")
        assert refused.status_code == 401
        answered(
            refused.json()["error"],
            ApiKeyInvalid(reason="No API key was sent", wanted="one of the keys of this runner"),
        )
        told = httpx2.get(f"{front.url}/page/status", headers={"authorization": "Bearer secret"})
        assert told.json()["status"] == "READY"
        assert told.headers["cache-control"] == "no-store"


def test_before_there_is_an_engine_it_says_so(engine_directory):
    with running(engine_directory, loaded=False) as front:
        told = httpx2.get(f"{front.url}/page/status").json()
    assert (told["status"], told["chat"]) == ("STARTING", False)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "model"),
        ({"SERVED_MODEL_NAME": "llama"}, "llama"),
        ({"API_KEYS": "secret"}, None),
        ({"API_KEYS": "secret", "METRICS_NEED_KEY": "true"}, "model"),
    ],
)
def test_the_model_is_named_to_those_who_may_ask_for_models(engine_directory, settings, told):
    with running(engine_directory, **settings) as front:
        answer = httpx2.get(f"{front.url}/page/status", headers={"authorization": "Bearer secret"})
    assert answer.json()["model"] == told


@pytest.fixture
def client():
    return FakeEngineClient()


@pytest.fixture
def metrics(client):
    return Metrics(Admission(10), lambda: client)


@pytest.fixture
def history(metrics, client):
    return History(metrics, Admission(10), lambda: client, 100)


def test_it_tells_what_happened_between_two_looks(history, metrics, client):
    client.statistics = Statistics(1, 3, 200, 50)
    metrics.tokens += 60
    history.take(102)
    history.take(104)
    told = history.view(105)
    assert told["tokens_per_second"] == [30, 0]
    assert (told["queued"], told["kv_cache"]) == ([3, 3], [0.25, 0.25])


def test_errors_are_told_until_they_are_too_old(history, metrics):
    for error in (PromptRequired(), *(EngineProcessDied(reason="x") for _ in range(2))):
        metrics.ended("failed", error)
    history.take(102)
    metrics.ended("failed", PromptRequired())
    history.take(104)
    told = history.view(110)["errors"]
    assert told == [
        {"code": "E1001", "name": "PromptRequired", "count": 2, "seconds_ago": 6},
        {"code": "E2400", "name": "EngineProcessDied", "count": 2, "seconds_ago": 8},
    ]
    assert history.view(103 + 300)["errors"] == [{**told[0], "count": 1, "seconds_ago": 299}]
    assert history.view(105 + 300)["errors"] == []


def test_an_engine_without_a_kv_cache_tells_none_and_nothing_is_no_fault(history):
    assert history.view(101)["running"] == []
    history.take(102)
    assert history.view(103)["kv_cache"] == [None]


def test_five_minutes_are_kept(history):
    for at in range(102, 2000, SECONDS):
        history.take(at)
    assert len(history.view(2000)["running"]) * SECONDS == 300


def test_counts_are_those_since_the_front_began(metrics, client):
    metrics.ended("failed", PromptRequired())
    assert metrics.errors() == Counter({"E1001": 1})
    history = History(metrics, Admission(10), lambda: client, 100)
    history.take(102)
    assert history.view(103)["errors"] == []
