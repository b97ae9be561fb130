"""The simulation of `cog-triton plan` beside what it simulates: four runners of the mock behind nginx."""

import json
import statistics
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

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


@pytest.fixture(scope="module")
def balanced(runners, tmp_path_factory):
    """The address of nginx before them, as deploy/nginx has it."""
    folder = tmp_path_factory.mktemp("nginx")
    port = free_port()
    text = CONFIG.read_text().replace("listen 8080", f"listen 127.0.0.1:{port}")
    for number, url in enumerate(runners):
        text = text.replace(f"runner-{number}:5000", url.removeprefix("http://"))
    assert "runner-" not in text
    (folder / "cog-triton.conf").write_text(text)
    names = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{name}_temp_path {folder}/{name};\n" for name in names)
    (folder / "nginx.conf").write_text(
        f"daemon off;\nworker_processes 2;\npid {folder}/pid;\nevents {{}}\n"
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
