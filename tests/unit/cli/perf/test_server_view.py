"""What a server reports at /metrics for the time of a load."""

import asyncio

import pytest
from typer.testing import CliRunner

from cli.main import app
from cli.perf.reach import parsed
from cli.perf.server_view import ServerView
from cli.perf.targets import triton_model
from shared.errors import ServerNotMeasured
from tests.support.loopback import LoopbackServer, QuietHandler

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
