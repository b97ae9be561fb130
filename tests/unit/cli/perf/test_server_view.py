"""What a server reports at /metrics for the time of a load."""

import asyncio
import itertools
import time
from contextlib import suppress

import pytest
from typer.testing import CliRunner

from cli.main import app
from cli.perf import server_view
from cli.perf.address import parsed
from cli.perf.server_view import ServerView
from cli.perf.targets import triton_model
from shared.errors import ServerNotMeasured
from tests.support.hostile import Hostile, says
from tests.support.loopback import LoopbackServer, QuietHandler

DURATION = "cog_triton_request_duration_seconds"
BUCKET = f"{DURATION}_bucket"

TRITON = """\
# HELP nv_inference_request_success Number of successful inference requests, all batch sizes
# TYPE nv_inference_request_success counter
nv_inference_request_success{{model="ensemble",version="1"}} {good}
nv_inference_request_success{{model="tensorrt_llm",version="1"}} {parts}
# HELP nv_inference_request_failure Number of failed inference requests, all batch sizes
# TYPE nv_inference_request_failure counter
nv_inference_request_failure{{model="ensemble",reason="OTHER",version="1"}} {bad}
nv_inference_request_failure{{model="ensemble",reason="CANCELED",version="1"}} {left}
"""


def test_tritons_counters_by_the_names_that_triton_gives_them_and_of_the_model_that_is_asked_for():
    told = [{"good": 3, "parts": 4, "bad": 1, "left": 0}, {"good": 8, "parts": 90, "bad": 2, "left": 2}]

    class Triton(QuietHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(TRITON.format(**told.pop(0)).encode())

    async def view(url):
        view = ServerView(url, "ensemble")
        await view.begin()
        return await view.end()

    with LoopbackServer(Triton) as triton:
        assert asyncio.run(view(f"{triton.url}/metrics")) == {"requests": 5, "errors": 3}


@pytest.mark.parametrize(
    "odd",
    [
        'cog_triton_request_duration_seconds_bucket{le="abc"} 5\n',
        "cog_triton_request_duration_seconds_bucket 5\n",
        'cog_triton_request_duration_seconds_bucket{le="1"} 5\n',  # without its sum
        "cog_triton_generated_tokens_total NaN\n",
        "cog_triton_engine_restarts_total +Inf\n",
        f'cog_triton_errors_total {{0}}{"0" * 308}\ncog_triton_errors_total{{a=""}} {{0}}{"0" * 308}\n',
        *(
            f'{BUCKET}{{le="{limit}"}} {{0}}\n{BUCKET}{{le="2"}} {{0}}\n{DURATION}_sum {{0}}\n'
            for limit in ("NaN", "-1", "-Inf")
        ),
        f'{BUCKET}{{le="1"}} {{0}}0\n{BUCKET}{{le="2"}} {{0}}\n{DURATION}_sum {{0}}\n',  # not cumulative
        f'{BUCKET}{{le="1"}} {{0}}\n{DURATION}_sum -{{0}}\n',
        f'{BUCKET}{{le="1"}} {{0}}\n{DURATION}_sum {{0}}{"0" * 307}\n',
    ],
)
def test_metrics_that_are_malformed_are_left_out(odd):
    """They cost the whole report."""
    numbers = itertools.count()

    class Odd(QuietHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            number = next(numbers)
            said = odd.replace("{0}", str(number))
            self.wfile.write(f"{said}cog_triton_prompt_tokens_total {number}\n".encode())

    async def view(url):
        view = ServerView(url)
        await view.begin()
        return await view.end()

    with LoopbackServer(Odd) as server:
        assert asyncio.run(view(f"{server.url}/metrics")) == {"prompt_tokens": 1}


@pytest.mark.parametrize(
    "odd",
    [
        'a{x="1", ="2"} 1\n',  # IndexError in the parser
        f"a 1 1{'0' * 400}\n",  # OverflowError
        f"a 1{'0' * 400}\n",
        "a" * 20_000 + " 1\n",
    ],
    ids=["no name", "timestamp", "value", "length"],
)
def test_what_is_no_exposition_at_all_is_left_out(odd):
    """It cost the whole report."""
    with Hostile(says(f"HTTP/1.1 200 OK\n\n{odd}cog_triton_prompt_tokens_total 1\n")) as server:
        assert asyncio.run(ServerView(server.url).why_absent()) == "no metrics are there"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("cog_triton_generated_tokens_total 9\n", "cog_triton_generated_tokens_total 3\n"),
        ("cog_triton_generated_tokens_total 9\n", ""),
        (
            f'{BUCKET}{{le="1"}} 9\n{BUCKET}{{le="2"}} 9\n{DURATION}_sum 9\n',
            f'{BUCKET}{{le="1"}} 3\n{BUCKET}{{le="2"}} 12\n{DURATION}_sum 10\n',
        ),
    ],
)
def test_a_server_that_was_started_again_in_between_has_added_nothing_that_is_known(before, after):
    """Figures were negative, or far too small."""
    told = [f"{before}cog_triton_prompt_tokens_total 1\n", f"{after}cog_triton_prompt_tokens_total 2\n"]

    class Again(QuietHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(told.pop(0).encode())

    async def view(url):
        view = ServerView(url)
        await view.begin()
        return await view.end()

    with LoopbackServer(Again) as server:
        assert asyncio.run(view(server.url)) is None


def test_a_gauge_that_has_no_sum_is_left_out():
    """Where it was shown, it was rounded: an error."""
    waiting = "".join(f'cog_triton_engine_queued_requests{{a="{one}"}} 1e308\n' for one in "bc")

    async def view(url):
        view = ServerView(url)
        await view.begin()
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await view.watch(0.1)
        return await view.end()

    running = "cog_triton_engine_active_requests 2\n"
    with Hostile(says(f"HTTP/1.1 200 OK\n\n{waiting}{running}")) as server:
        assert asyncio.run(view(server.url)) == {"most_running": 2}


def test_metrics_that_drip_are_left(monkeypatch):
    monkeypatch.setattr(server_view, "_SECONDS", 0.5)

    class Drips(QuietHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                for _ in range(100):
                    self.wfile.write(b"#")
                    self.wfile.flush()
                    time.sleep(0.1)

    with LoopbackServer(Drips) as server:
        began = time.monotonic()
        assert asyncio.run(ServerView(f"{server.url}/metrics").why_absent()) == "no metrics are there"
        assert time.monotonic() - began < 8


@pytest.mark.parametrize(
    ("path", "named", "model"),
    [("", None, "ensemble"), ("", "mine", "mine"), ("/v2/models/yours/generate_stream", "mine", "yours")],
)
def test_the_model_that_triton_is_asked_for(path, named, model):
    assert triton_model(parsed(f"http://localhost:8000{path}"), named) == model


def test_metrics_that_are_not_where_they_were_said_to_be_are_told_before_any_load():
    nobody = "http://127.0.0.1:1"
    asked = ["perf", nobody, "--target", "cog-triton", "--metrics", f"{nobody}/metrics"]
    refused = CliRunner().invoke(app, asked).exception
    assert isinstance(refused, ServerNotMeasured)
    assert refused.details == {"url": f"{nobody}/metrics", "reason": "no metrics are there"}


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize(
    ("key", "told"),
    [(None, "it needs a key (HTTP {})"), ("k", "the key is not accepted there (HTTP {})")],
)
def test_metrics_that_need_another_key_say_so(monkeypatch, status, key, told):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    if key:
        monkeypatch.setenv("OPENAI_API_KEY", key)

    class Server(QuietHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

    with LoopbackServer(Server) as server:
        metrics = f"{server.url}/metrics"
        asked = ["perf", server.url, "--target", "cog-triton", "--metrics", metrics]
        refused = CliRunner().invoke(app, asked).exception
    assert isinstance(refused, ServerNotMeasured)
    assert refused.details == {"url": metrics, "reason": told.format(status)}


@pytest.mark.parametrize("is_elsewhere", [False, True], ids=["the server's own", "those of --metrics"])
def test_metrics_that_need_the_key_get_it(monkeypatch, is_elsewhere):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    keys = set()

    class Server(QuietHandler):
        def do_GET(self) -> None:
            keys.add((self.path, self.headers["Authorization"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"a 1\n")

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            answer = b'{"status": "succeeded", "output": "0"}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    with LoopbackServer(Server) as server:
        where = ["http://127.0.0.1:1", "--metrics", f"{server.url}/metrics"] if is_elsewhere else [server.url]
        CliRunner().invoke(app, ["perf", *where, "--target", "cog-triton", "--requests", "1"])
    assert keys == {("/metrics", "Bearer k")}
