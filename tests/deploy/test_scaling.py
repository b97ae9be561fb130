"""The simulation of `cog-triton plan` beside what it simulates: four runners of the mock behind nginx."""

import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from getpass import getuser
from pathlib import Path
from threading import Semaphore

import httpx2
import pytest

from builder.pipeline import build
from cli.perf.plan import Step
from cli.plan.curve import Curve
from cli.plan.fleet import simulate
from shared.cog.server import free_port
from tests.integration.conftest import cog_server
from tests.support.images import ROOT
from tests.support.loopback import LoopbackServer, QuietHandler
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


FULL = b"E2106"


class Server(QuietHandler):
    """A runner with so many places, each taken for as long as an answer takes."""

    protocol_version = "HTTP/1.1"

    def __init__(self, places: Semaphore, seconds: float, status: int, *arguments: object) -> None:
        self.places, self.seconds, self.status = places, seconds, status
        super().__init__(*arguments)

    def do_GET(self) -> None:
        self.answer(200, b"ready")

    def do_POST(self) -> None:
        prompt = self.rfile.read(int(self.headers["Content-Length"]))
        if not self.places.acquire(blocking=False):
            self.answer(429, FULL)
            return
        try:
            time.sleep(self.seconds)
            self.answer(self.status, prompt)
        finally:
            self.places.release()

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        if status in (429, 503):
            self.send_header("Retry-After", "2")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def stand_in(status: int = 200, places: int = 100, seconds: float = 0) -> Iterator[str]:
    """The address of one."""
    with LoopbackServer(partial(Server, Semaphore(places), seconds, status)) as server:
        yield server.url


@contextmanager
def nobody() -> Iterator[str]:
    """An address where connections are refused."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@contextmanager
def silence() -> Iterator[str]:
    """An address where connections are neither accepted nor refused, as of a host that is gone."""
    with socket.socket() as silent, ExitStack() as stack:
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)
        with suppress(TimeoutError):
            while True:  # until the queue of connections is full
                stack.enter_context(socket.create_connection(silent.getsockname(), timeout=0.2))
        yield f"http://127.0.0.1:{silent.getsockname()[1]}"


@contextmanager
def nginx_before_all(folder: Path, *runners: AbstractContextManager[str]) -> Iterator[str]:
    """The address of nginx before them."""
    with ExitStack() as stack:
        urls = [stack.enter_context(runner) for runner in runners]
        yield stack.enter_context(nginx_before(urls, folder))


@pytest.mark.parametrize("size", [10, 100_000])
def test_nginx_passes_over_runners_that_are_full_whatever_the_prompt(tmp_path, size):
    runners = [stand_in(status) for status in (429, 503, 200, 200)]
    prompt = bytes(size)
    with nginx_before_all(tmp_path, *runners) as url:
        answers = [httpx2.post(url, content=prompt) for _ in range(8)]
    assert {answer.status_code for answer in answers} == {200}
    assert all(answer.content == prompt for answer in answers)


def test_when_all_are_full_nginx_passes_on_what_they_say(tmp_path):
    """It took each that was full out for ten seconds, and answered 502 when none was left."""
    runners = [stand_in(places=4, seconds=0.2) for _ in range(RUNNERS)]
    clients = 20  # for 16 places

    def ask(url: str) -> list[httpx2.Response]:
        with httpx2.Client() as client:
            return [client.post(url, content=b"?") for _ in range(40)]

    with nginx_before_all(tmp_path, *runners) as url, ThreadPoolExecutor(clients) as pool:
        answers = [answer for several in pool.map(ask, [url] * clients) for answer in several]
    assert {answer.status_code for answer in answers} == {200, 429}
    refused = [answer for answer in answers if answer.status_code == 429]
    assert {(answer.content, answer.headers["Retry-After"]) for answer in refused} == {(FULL, "2")}


@pytest.mark.parametrize(("gone", "count"), [(nobody, 3), (silence, 1)])
def test_nginx_passes_over_runners_that_are_gone(tmp_path, gone, count):
    runners = [gone() for _ in range(count)] + [stand_in() for _ in range(RUNNERS - count)]
    with nginx_before_all(tmp_path, *runners) as url:
        answers = [httpx2.post(url, content=b"?") for _ in range(8)]
    assert {answer.status_code for answer in answers} == {200}
