"""Servers that drip, flood, never end, or answer what nobody asked for; and whom they get a secret from."""

import json
import time
from base64 import b64encode
from contextlib import suppress
from typing import ClassVar
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from cli.main import app
from cli.perf import http, reach
from shared.errors import ServerNotMeasured
from tests.support.hostile import Hostile, drips, floods, says
from tests.support.loopback import LoopbackServer, QuietHandler

OK = "HTTP/1.1 200 OK\n"
ANSWER = '{"status": "succeeded", "output": "0"}'
ONE = ["--concurrency", "1", "--requests", "1", "--n_output_tokens", "5"]
QUESTIONS = {
    "which kind": ("", [], "it did not answer within 0.5 s"),
    "which model": ("/v1", [], "it did not answer within 0.5 s"),
    "metrics": ("", ["--target", "mock", "--metrics", "{}/metrics"], "no metrics are there"),
}
DRIPS = {"head": drips(OK, b"a: b\r\n"), "body": drips(f"{OK}Content-Length: 1000000\n\n")}


@pytest.fixture(autouse=True)
def no_keys(monkeypatch):
    for name in ("OPENAI_API_KEY", "REPLICATE_API_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def root_of(server):
    return f"http://{urlsplit(server.url).netloc}"


def refusal(*asked):
    """Why it is not measured."""
    refused = CliRunner().invoke(app, ["perf", *asked]).exception
    assert isinstance(refused, ServerNotMeasured)
    return refused.details["reason"]


def step_of(*asked):
    """The only step of the result."""
    done = CliRunner().invoke(app, ["perf", *asked, *ONE, "--json"])
    assert not done.exception or isinstance(done.exception, SystemExit)
    [step] = json.loads(done.stdout)["steps"]
    return step


@pytest.mark.timeout(60)
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("drip", DRIPS)
def test_a_single_question_has_one_deadline_for_all(monkeypatch, question, drip):
    """Each byte was given the time anew."""
    monkeypatch.setattr(reach, "_SECONDS", 0.5)
    monkeypatch.setattr("cli.perf.server_view._SECONDS", 0.5)
    path, options, reason = QUESTIONS[question]
    with Hostile(DRIPS[drip]) as server:
        began = time.monotonic()
        url = root_of(server)
        assert refusal(url + path, *(option.format(url) for option in options)) == reason
        assert time.monotonic() - began < 20


@pytest.mark.timeout(60)
def test_a_single_question_has_no_answer_without_an_end(monkeypatch):
    monkeypatch.setattr(http, "MAX_ANSWER", 100_000)
    with Hostile(floods(f"{OK}\n", b"x" * 4096)) as server:
        assert refusal(f"{root_of(server)}/v1") == "its answer has more than 100.0 kB"


class Endless(QuietHandler):
    """As many answers as are `good` have an end."""

    good = 0

    def do_POST(self) -> None:
        cls = type(self)
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        with suppress(OSError):
            if cls.good:
                cls.good -= 1
                self.wfile.write(b'event: completed\ndata: {"status": "succeeded"}\n\n')
            else:
                while True:
                    self.wfile.write(b'event: output\ndata: {"chunk": " 0"}\n\n' * 100)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("good", [0, 1], ids=["the first request", "the load"])
def test_an_answer_that_never_ends_is_abandoned(good):
    with LoopbackServer(type("Server", (Endless,), {"good": good})) as server:
        if good:
            [(code, found)] = step_of(server.url, "--target", "mock")["failures"].items()
            told = f"{code} ({found['said']})"
        else:
            told = refusal(server.url, "--target", "mock", *ONE).removeprefix("its first request failed: ")
    assert told.startswith("endless (")
    assert told.endswith(" events came for 5 tokens)")


@pytest.mark.parametrize("hint", ["103 Early Hints\nLink: </a>", "100 Continue"])
def test_what_comes_before_the_answer_is_not_the_answer(hint):
    said = f"HTTP/1.1 {hint}\n\n" * 2 + f"{OK}Content-Length: {len(ANSWER)}\n\n{ANSWER}"
    with Hostile(says(said)) as server:
        step = step_of(root_of(server), "--target", "cog-triton", "--output_method", "wait")
    assert (step["requests"]["succeeded"], step["failures"]) == (1, {})


def test_a_change_of_protocol_is_a_failure(caplog):
    said = "HTTP/1.1 101 Switching Protocols\nUpgrade: h2c\nConnection: upgrade\n\nx"
    with Hostile(says(said)) as server:
        assert refusal(root_of(server), "--target", "mock") == "its first request failed: not JSON"
    assert caplog.records == []  # of an error that nobody caught


@pytest.fixture
def recorder():
    """A server of Cog's, OpenAI's and Replicate's API, and the paths and Authorizations that it was sent."""

    class Server(QuietHandler):
        sent: ClassVar = []
        url = ""
        urls = None

        def do_GET(self) -> None:
            self.sent.append((self.path, self.headers["Authorization"]))
            self.answer(
                b"event: done\ndata: {}\n\n" if self.path == "/stream" else b'{"data": [{"id": "m"}]}'
            )

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.sent.append((self.path, self.headers["Authorization"]))
            answer = {"status": "succeeded", "output": "0", "choices": [{"text": "0"}], "urls": self.urls}
            self.answer(json.dumps(answer).encode())

        def answer(self, content) -> None:
            self.send_response(404 if self.path == "/v2/health/ready" else 200)
            self.send_header("Content-Length", str(len(content)))
            kind = "text/event-stream" if content.startswith(b"event") else "application/json"
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(content)

    with LoopbackServer(Server) as server:
        Server.url = server.url
        yield Server


@pytest.mark.parametrize("path", ["", "/v1"])
@pytest.mark.parametrize("key", [None, "k"])
def test_the_user_of_the_address_is_sent_with_every_request_unless_there_is_a_key(
    monkeypatch, recorder, path, key
):
    """The requests of the load did not have it."""
    if key:
        monkeypatch.setenv("OPENAI_API_KEY", key)
    url = recorder.url.replace("//", "//me:pass%20word@")
    done = CliRunner().invoke(app, ["perf", url + path, *ONE, "--output_method", "wait", "--json"])
    wanted = "Bearer k" if key else f"Basic {b64encode(b'me:pass word').decode()}"
    assert {sent for _, sent in recorder.sent} == {wanted}
    asked = {"/v1/models", "/v1/chat/completions"} if path else {"/health-check", "/predictions"}
    assert {place for place, _ in recorder.sent} >= asked | {"/metrics"}
    assert json.loads(done.stdout)["steps"][0]["requests"]["succeeded"] == 1
    assert not any(secret in done.output for secret in ("pass", wanted))


@pytest.mark.parametrize("key", ["s3cret ", "s3cret\t", "s3cret\n"])
def test_a_key_that_no_header_can_have_is_not_shown(monkeypatch, recorder, key):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    done = CliRunner().invoke(app, ["perf", recorder.url, *ONE])
    told = str(done.exception)
    assert "the key in OPENAI_API_KEY has characters that no key has" in told
    assert "s3cret" not in told


def test_the_user_of_the_address_is_not_sent_to_where_other_metrics_are(recorder):
    asked = ["perf", "http://me:word@127.0.0.1:1", "--target", "mock", "--metrics", f"{recorder.url}/metrics"]
    CliRunner().invoke(app, asked)
    assert set(recorder.sent) <= {("/metrics", None)}


@pytest.mark.parametrize(
    "urls",
    [
        "http://127.0.0.1:1",
        [1],
        {"stream": 5},
        {"stream": ["http://127.0.0.1:1"]},
        {"stream": "/stream"},
        {"stream": "ftp://127.0.0.1:1/stream"},
        {"stream": "grpc://127.0.0.1:1"},
        {"stream": "http://:80/stream"},
        {"stream": "http://[x/stream"},
        {"stream": "http://127.0.0.1:x/stream"},
        {"stream": "http://a..b/stream"},
    ],
    ids=json.dumps,
)
def test_an_address_of_replicates_stream_that_is_none(monkeypatch, recorder, urls):
    monkeypatch.setenv("REPLICATE_API_TOKEN", "t")
    recorder.urls = urls
    reason = refusal(recorder.url, "--target", "replicate", "--model", "m")
    assert reason == "its first request failed: malformed answer (the address to stream from is not a URL)"


@pytest.mark.parametrize("urls", [None, {}, {"stream": None}, {"stream": ""}], ids=json.dumps)
def test_no_address_of_replicates_stream(recorder, urls):
    recorder.urls = urls
    reason = refusal(recorder.url, "--target", "replicate", "--model", "m")
    assert reason.startswith("its first request failed: no stream (")


@pytest.mark.parametrize("place", ["{own}", "http://me@{host}"])
def test_replicates_token_goes_to_the_host_that_was_named(monkeypatch, recorder, place):
    monkeypatch.setenv("REPLICATE_API_TOKEN", "t")
    host = recorder.url.removeprefix("http://")
    recorder.urls = {"stream": f"{place.format(own=recorder.url, host=host)}/stream"}
    url = recorder.url.replace("//", "//me:word@")
    step = step_of(url, "--target", "replicate", "--model", "m")
    assert step["requests"]["succeeded"] == 1
    assert {sent for _, sent in recorder.sent} == {"Bearer t"}


def test_replicates_token_goes_to_no_other_host(monkeypatch, recorder):
    monkeypatch.setenv("REPLICATE_API_TOKEN", "t")
    recorder.urls = {"stream": recorder.url.replace("127.0.0.1", "localhost") + "/stream"}
    step_of(recorder.url, "--target", "replicate", "--model", "m")
    assert {sent for place, sent in recorder.sent if place == "/stream"} == {None}
