"""What pages of other origins can do to a runner, in a real browser."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

import pytest

from tests.support.browser import chromium
from tests.support.front import running, write_engine
from tests.support.loopback import LoopbackServer, QuietHandler

BODY = json.dumps({"input": {"prompt": "1", "max_tokens": 1}})
OPENAI_BODY = json.dumps({"model": "mock", "prompt": "1", "max_tokens": 1})
JSON = {"Content-Type": "application/json"}
# What a script gets: a status and a body, or the name of an error. `opaque` shows neither.
FETCH = """
const [address, options, done] = arguments;
fetch(address, options).then(async (answer) => done([answer.type, answer.status, await answer.text()]),
                             (error) => done([error.name]));
"""
FORM = """
const form = document.createElement("form");
form.method = "post"; form.action = arguments[0]; form.target = "_self";
document.body.append(form); form.submit();
"""


class Blank(QuietHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>other</title>")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(
        tmp_path_factory.mktemp("profile"), "--host-resolver-rules=MAP rebound.test 127.0.0.1"
    ) as driver:
        yield driver
        driver.get_log("browser")


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    return write_engine(tmp_path_factory.mktemp("engine") / "engine")


@pytest.fixture(scope="module")
def other():
    with LoopbackServer(Blank) as server:
        yield server


def served(front):
    """How many predictions were asked for, and errors told."""
    asked = [request for request in front.client.requests if len(request.input_token_ids) > 1]
    return len(asked), front.front.metrics.errors()


@pytest.mark.parametrize("host", ["other.localhost", "127.0.0.1"])  # of another site; of another port
def test_a_page_of_another_origin_neither_sends_nor_reads(browser, engine, other, host):
    with running(engine, names_checked=True, ALLOW_SHUTDOWN="true") as front:
        ended = []
        front.front._shut_down = lambda: ended.append(True)
        browser.get(f"http://{host}:{other.server_port}/")
        for path, body in (
            ("/predictions", BODY),
            ("/v1/completions", OPENAI_BODY),
            ("/tokenize", OPENAI_BODY),
        ):
            for options in (
                {"method": "POST", "body": body, "headers": JSON},  # asked for before, in vain
                {"method": "POST", "body": body, "mode": "no-cors"},
                {"method": "POST", "body": body, "mode": "no-cors", "headers": JSON},
            ):
                answer = browser.execute_async_script(FETCH, front.url + path, options)
                assert answer in (["TypeError"], ["opaque", 0, ""])
        browser.execute_async_script(FETCH, f"{front.url}/shutdown", {"method": "POST", "mode": "no-cors"})
        assert browser.execute_async_script(FETCH, f"{front.url}/metrics", {}) == ["TypeError"]
        asked, errors = served(front)
        assert asked == 0
        assert errors["E1347"] == 7
        browser.execute_script(FORM, f"{front.url}/shutdown")
        assert "E1347" in browser.page_source
        assert ended == []


def test_a_page_whose_name_leads_here_later_reads_nothing(browser, engine):
    with running(engine, names_checked=True) as front:
        browser.get(f"http://rebound.test:{urlsplit(front.url).port}/")
        assert "E1346" in browser.page_source
        answer = browser.execute_async_script(FETCH, "/metrics", {})
        assert answer[:2] == ["basic", 421]
        answer = browser.execute_async_script(
            FETCH, "/predictions", {"method": "POST", "body": BODY, "headers": JSON}
        )
        assert answer[:2] == ["basic", 421]
        assert served(front)[0] == 0


def test_a_page_of_an_allowed_origin_sends_and_reads(browser, engine, other):
    origin = f"http://other.localhost:{other.server_port}"
    with running(engine, names_checked=True, CORS_ORIGINS=origin) as front:
        browser.get(f"{origin}/")
        options = {"method": "POST", "body": BODY, "headers": {**JSON, "X-Request-Id": "mine"}}
        kind, status, text = browser.execute_async_script(FETCH, f"{front.url}/predictions", options)
        assert (kind, status) == ("cors", 200)
        assert json.loads(text)["status"] == "succeeded"


def test_the_runners_own_page_may(browser, engine):
    with running(engine, names_checked=True) as front:
        browser.get(front.url.replace("127.0.0.1", "llm.localhost"))
        options = {"method": "POST", "body": BODY, "headers": JSON}
        kind, status, _ = browser.execute_async_script(FETCH, "/predictions", options)
        assert (kind, status) == ("basic", 200)
