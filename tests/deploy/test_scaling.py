"""The simulation of `cog-triton plan` beside what it simulates: four runners of the mock behind nginx."""

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from getpass import getuser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx2
import pytest

from builder.pipeline import build
from cli.perf.plan import Step
from cli.plan.curve import Curve
from cli.plan.fleet import simulate
from shared.cog.server import free_port
from tests.integration.conftest import cog_server
from tests.support.images import ROOT
from tests.support.waiting import wait_for

CONFIG = ROOT / "deploy/nginx/cog-triton.conf"
RUNNERS = 4
PLACES = 8
TOKENS = 40
MOCK = f"""\
engine: mock
tokens_per_second: 20
time_to_first_token: 0.1
max_batch_size: {PLACES}
"""
RATES = (10, 14)  # of 15.6 that they can do: hardly anybody waits, and most do
SECONDS = 20
WITHIN = 0.1


def perf(url: str, *options: str) -> dict:
    """What `cog-triton perf` says of a server."""
    program = str(Path(sys.executable).with_name("cog-triton"))
    command = [program, "perf", url, "--n_output_tokens", str(TOKENS), "--json"]
    done = subprocess.run([*command, *options], cwd=ROOT, check=True, stdout=subprocess.PIPE, timeout=120)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def runners(tmp_path_factory):
    """The addresses of four."""
    folder = tmp_path_factory.mktemp("runners")
    (folder / "config.yaml").write_text(MOCK)
    build(str(folder / "config.yaml"), folder / "engine.tar")
    settings = {"COG_WEIGHTS": str(folder / "engine.tar"), "WEIGHTS_CACHE": str(folder / "cache")}
    with ExitStack() as stack:
        servers = [
            stack.enter_context(cog_server("runner", folder / f"{number}.log", **settings))
            for number in range(RUNNERS)
        ]
        yield [server.url for server in servers]


@contextmanager
def nginx_before(urls: Sequence[str], folder: Path) -> Iterator[str]:
    """The address of nginx before four servers, as deploy/nginx has it."""
    port = free_port()
    text = CONFIG.read_text().replace("listen 8080", f"listen 127.0.0.1:{port}")
    for number, url in enumerate(urls):
        text = text.replace(f"runner-{number}:5000", url.removeprefix("http://"))
    assert "runner-" not in text
    (folder / "cog-triton.conf").write_text(text)
    names = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{name}_temp_path {folder}/{name};\n" for name in names)
    (folder / "nginx.conf").write_text(
        f"user {getuser()};\ndaemon off;\nworker_processes 2;\npid {folder}/pid;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{paths}include {folder}/cog-triton.conf;\n}}\n"
    )
    command = ["nginx", "-p", folder, "-e", folder / "error.log", "-c", folder / "nginx.conf"]
    nginx = subprocess.Popen(command)
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert nginx.poll() is None, (folder / "error.log").read_text()
        with suppress(httpx2.TransportError):
            return httpx2.get(f"{url}/health/ready").status_code == 200
        return False

    try:
        wait_for(answers)
        yield url
    finally:
        nginx.terminate()
        nginx.wait(30)


@pytest.fixture(scope="module")
def balanced(runners, tmp_path_factory):
    """The address of nginx before them."""
    with nginx_before(runners, tmp_path_factory.mktemp("nginx")) as url:
        yield url


@pytest.fixture(scope="module")
def curve(runners):
    """One runner, measured alone."""
    return Curve.of(perf(runners[0], "--concurrency", f"1,4,{PLACES}", "--duration", "5"))


@pytest.mark.parametrize("rate", RATES)
def test_it_tells_what_four_runners_behind_nginx_do(curve, balanced, rate):
    measured = perf(balanced, "--rate", str(rate), "--duration", str(SECONDS))["steps"][0]
    assert measured["failures"] == {}
    simulated = simulate(curve, RUNNERS, Step(SECONDS, rate=rate).offsets())
    assert measured["requests"]["sent"] == len(simulated)
    latencies = [1000 * request.latency for request in simulated]
    firsts = [1000 * request.first_token for request in simulated]
    within = sum(request.ended <= SECONDS for request in simulated) / SECONDS
    cuts = statistics.quantiles(latencies, n=100, method="inclusive")
    told = {
        "requests/s": (measured["request_throughput"], within),
        "latency": (measured["request_latency"]["avg"], statistics.fmean(latencies)),
        "latency p50": (measured["request_latency"]["p50"], cuts[49]),
    }
    off = {name: sim / real - 1 for name, (real, sim) in told.items()}
    # What a busy machine adds to the few that wait is not told by any curve: for people to look at.
    told["latency p99"] = (measured["request_latency"]["p99"], cuts[98])
    told["first token"] = (measured["time_to_first_token"]["avg"], statistics.fmean(firsts))
    print(rate, {name: (round(real, 1), round(sim, 1)) for name, (real, sim) in told.items()})
    assert {name: by for name, by in off.items() if abs(by) > WITHIN} == {}


class Server(BaseHTTPRequestHandler):
    """A runner that is full, or is not."""

    protocol_version = "HTTP/1.1"

    def __init__(self, status: int, *arguments: object) -> None:
        self.status = status
        super().__init__(*arguments)

    def do_GET(self) -> None:
        self.answer(200, b"ready")

    def do_POST(self) -> None:
        self.answer(self.status, self.rfile.read(int(self.headers["Content-Length"])))

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("size", [10, 100_000])
def test_nginx_passes_over_runners_that_are_full_whatever_the_prompt(tmp_path, size):
    with ExitStack() as stack:
        urls = []
        for status in (429, 503, 200, 200):  # of three attempts one succeeds
            server = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), partial(Server, status)))
            Thread(target=server.serve_forever, daemon=True).start()
            stack.callback(server.shutdown)
            urls.append(f"http://127.0.0.1:{server.server_port}")
        url = stack.enter_context(nginx_before(urls, tmp_path))
        prompt = bytes(size)
        answers = [httpx2.post(url, content=prompt) for _ in range(8)]
    assert {answer.status_code for answer in answers} == {200}
    assert all(answer.content == prompt for answer in answers)
