"""`cog-triton perf` against servers of every kind, and against one whose faults are known."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from shared.cog.server import free_port
from shared.errors import ServerNotMeasured
from shared.layout import PROJECT_ROOT
from tests.integration.conftest import READY_SECONDS, cog_server, unpacked
from tests.support.aiperf import profile
from tests.support.loopback import LoopbackServer, QuietHandler
from tests.support.waiting import wait_for

PROGRAM = Path(sys.executable).with_name("cog-triton")
TOKENS = 40
KEY = "sk-measured"


def perf(url, *arguments, **environment):
    """What --json printed."""
    command = [PROGRAM, "perf", url, "--n_output_tokens", TOKENS, "--json", *arguments]
    done = subprocess.run(
        list(map(str, command)),
        check=False,
        capture_output=True,
        text=True,
        timeout=READY_SECONDS,
        env=os.environ | environment,
    )
    assert done.returncode in (0, 1), done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


@contextmanager
def server(**faults):
    """The address of a server of event streams with these faults (tests/support/perf_server.py)."""
    port = free_port()
    command = [sys.executable, "-m", "tests.support.perf_server", str(port), json.dumps(faults)]
    process = subprocess.Popen(command, cwd=PROJECT_ROOT)
    url = f"http://127.0.0.1:{port}"

    def answers():
        try:
            return httpx2.get(f"{url}/health-check").status_code == 200
        except httpx2.TransportError:
            assert process.poll() is None
            return False

    try:
        wait_for(answers)
        yield url
    finally:
        process.terminate()
        process.wait(20)


def kinds(result):
    """Of what was found; how late a busy machine was is not asked here."""
    return {finding["kind"] for finding in result["findings"]} - {"client lag", "pauses", "late first tokens"}


def text_of(result, kind):
    [text] = [finding["text"] for finding in result["findings"] if finding["kind"] == kind]
    return text


class TestFaults:
    def test_each_is_named(self):
        # Slow enough that a busy machine's own pauses are far below a tenth of what is planted.
        faults = {
            "rate": 40,
            "stalled_every": 50,
            "stall_seconds": 5,
            "lost_every": 37,
            "failed_every": 41,
            "slow_first": 6,
            "slow_seconds": 3,
        }
        load = ["--concurrency", "5,30", "--requests", "60", "--duration", "100"]
        with server(**faults) as url:
            result = perf(url, "--target", "mock", *load)
        assert kinds(result) == {"failures", "lost tokens", "stalls", "slow start"}
        # The first request of all is the one that finds out how the server is asked: 121 were sent.
        assert text_of(result, "failures") == "2 of 120 requests failed: HTTP 500 (out of luck)"
        assert text_of(result, "lost tokens") == "3 tokens missing, in 3 of 120 answers"
        assert text_of(result, "stalls").startswith("2 of 120 streams stalled: a pause of up to 5.")
        assert text_of(result, "slow start").startswith(
            "the first token of the first 6 requests came after up to 3."
        )
        light, heavy = result["steps"]
        assert [step["requests"]["sent"] for step in (light, heavy)] == [60, 60]
        assert sum(step["failures"]["HTTP 500"]["count"] for step in (light, heavy)) == 2
        assert sum(step["tokens"]["lost"] for step in (light, heavy)) == 3
        assert light["tokens"]["expected"] - light["tokens"]["actual"] == light["tokens"]["lost"]

    def test_streams_that_hang_and_streams_that_are_cut(self):
        with server(hung_every=10, cut_every=7) as url:
            result = perf(url, "--concurrency", "10", "--requests", "20", "--stall", "1")
        [step] = result["steps"]
        assert {code: found["count"] for code, found in step["failures"].items()} == {"stalled": 2, "cut": 3}
        assert step["failures"]["stalled"]["said"] == "nothing came for 1 s"

    def test_a_server_that_does_not_keep_up_with_a_rate(self):
        """Open loop: arrivals continue, and each one's wait counts from when it was due."""
        with server(most_running=4) as url:
            # Four places of 0.4 s each: 10 a second; twice that comes.
            result = perf(
                url, "--rate", "20", "--arrivals", "constant", "--duration", "3", "--slo", "ttft=200ms"
            )
        [step] = result["steps"]
        assert (step["requests"]["expected"], step["requests"]["sent"]) == (60, 60)
        assert result["sentence"].startswith("The server does not keep up with 20 requests/s")
        assert step["time_to_first_token"]["p99"] > 1500
        assert step["goodput"] < step["request_throughput"] <= 12
        assert "objective missed" in kinds(result)

    def test_a_report_that_cannot_be_written_loses_no_figures(self, tmp_path):
        page = tmp_path / "report.html"
        with server() as url:
            arguments = [
                "perf",
                url,
                "--n_output_tokens",
                "5",
                "--requests",
                "2",
                "--concurrency",
                "1",
                "--json",
            ]
            written = subprocess.run([PROGRAM, *arguments, "--report", page], capture_output=True, check=True)
            lost, refused = (
                subprocess.run([PROGRAM, *arguments, "--report", place], capture_output=True, check=False)
                for place in ("/dev/full", "/proc/x")
            )
        assert json.loads(written.stdout)["steps"][0]["requests"]["succeeded"] == 2
        assert json.loads(written.stdout)["sentence"].split()[0] in page.read_text()
        assert lost.returncode == 1
        assert json.loads(lost.stdout)["steps"][0]["requests"]["succeeded"] == 2
        assert lost.stderr.startswith(b"E3302 OutputRefused: The output cannot be written to /dev/full: ")
        assert refused.returncode == 1
        assert json.loads(refused.stdout)["error"]["code"] == "E3302"

    @pytest.mark.parametrize("form", ["json", "text"])
    def test_after_ctrl_c_the_figures_until_then_are_reported(self, tmp_path, form):
        page = tmp_path / "report.html"
        load = ["--concurrency", "2,3,4", "--requests", "4", "--duration", "100", "--n_output_tokens", TOKENS]
        faults = {"rate": 100, "hung_every": 9}
        with server(**faults) as url:
            command = [PROGRAM, "perf", url, "--target", "mock", *load, "--report", page]
            process = subprocess.Popen(
                list(map(str, [*command, "--json"] if form == "json" else command)),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            # The ninth request is the last of the second load, which it would hold for a minute.
            wait_for(lambda: httpx2.get(f"{url}/asked").json() >= 9)
            wait_for(lambda: httpx2.get(f"{url}/running").json() == 1)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=20)
        assert (process.returncode, err) == (130, "")
        assert "<b>interrupted</b>: Ctrl-C after " in page.read_text()
        if form == "text":
            assert "interrupted: Ctrl-C after " in out
            return
        result = json.loads(out)
        assert result["interrupted"]
        first, second = (step["requests"] for step in result["steps"])
        assert (first["succeeded"], first["unfinished"]) == (4, 0)
        assert (second["succeeded"], second["failed"], second["unfinished"]) == (3, 0, 1)
        assert result["steps"][1]["tokens"]["lost"] == 0
        assert text_of(result, "interrupted").endswith(
            " at 3 streams; 1 of 4 requests had not ended (not counted in the latencies); 1 load not run"
        )

    def test_ctrl_c_before_anything_was_measured_ends_it(self):
        with server(slow_first=1, slow_seconds=30) as url:
            process = subprocess.Popen(
                [PROGRAM, "perf", url, "--target", "mock"], stdout=subprocess.PIPE, text=True
            )
            wait_for(lambda: httpx2.get(f"{url}/asked").json() >= 1)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=20)
        assert (process.returncode, out) == (130, "")

    def test_batches(self):
        with server() as url:
            result = perf(url, "--rate", "5", "--unit", "batch", "--duration", "3")
        [step] = result["steps"]
        # Pauses of 1 s let three batches in at most, however fast a server that makes up for lost time is; they
        # take 0.4 s each, and a busy machine gets to two.
        assert (step["requests"]["sent"], step["in_flight"]["max"]) in [(10, 5), (15, 5)]


@pytest.fixture(scope="module")
def runner(mock_archive, tmp_path_factory):
    directory = tmp_path_factory.mktemp("perf")
    settings = {"COG_WEIGHTS": str(mock_archive()), "WEIGHTS_CACHE": str(directory / "weights")}
    with cog_server("runner", directory / "log", **settings) as running:
        yield running


class TestKinds:
    @staticmethod
    def check(result, api, counted_by="server"):
        [step] = result["steps"]
        assert result["api"] == api
        assert step["failures"] == {}
        assert (step["requests"]["sent"], step["tokens"]["counted_by"]) == (8, counted_by)
        if counted_by == "server":
            assert step["tokens"]["actual"] == step["tokens"]["expected"] == 8 * TOKENS
        return step

    def test_cogs_api_is_found_and_the_servers_own_view_beside(self, runner):
        result = perf(runner.url, "--concurrency", "4", "--requests", "8")
        view = self.check(result, "Cog's API")["server"]
        assert (view["requests"], view["output_tokens"], view["engine_restarts"]) == (8, 8 * TOKENS, 0)
        assert view["time_to_first_token"]["count"] == view["request_latency"]["count"] == 8
        assert view["request_latency"]["avg"] <= result["steps"][0]["request_latency"]["avg"]

    def test_openais(self, runner):
        result = perf(f"{runner.url}/v1", "--concurrency", "4", "--requests", "8")
        self.check(result, "OpenAI's API (completions)")
        assert result["model"] == "mock"

    @pytest.mark.parametrize("method", ["yield", "wait"])
    def test_the_mock_at_a_rate_of_its_own_counts_every_token(self, runner, method):
        arguments = ["--target", "mock", "--tps", "10", "--output_method", method]
        result = perf(runner.url, "--concurrency", "8", "--requests", "8", *arguments)
        step = self.check(result, "the mock")
        assert (step["tokens"]["lost"], step["tokens"]["wrong"]) == (0, 0)
        latency = step["request_latency"]["p50"] / 1000
        assert 0.95 * TOKENS / 10 < latency < 2 * TOKENS / 10  # a busy machine adds to it
        assert (step["time_to_first_token"] is None) == (method == "wait")

    def test_tritons_http_and_grpc(self, mock_triton):
        arguments = ["--concurrency", "4", "--requests", "8"]
        # Of Triton's own tensors none tells how many tokens there were.
        http = perf(f"http://127.0.0.1:{mock_triton.http_port}", *arguments)
        self.check(http, "Triton's HTTP", "events")
        grpc = perf(f"grpc://127.0.0.1:{mock_triton.grpc_port}", *arguments)
        self.check(grpc, "Triton's gRPC", "events")

    def test_replicates(self):
        arguments = ["--target", "replicate", "--model", "abc", "--concurrency", "4", "--requests", "8"]
        with server(hung_every=5) as url:
            result = perf(url, *arguments, "--stall", "1", REPLICATE_API_TOKEN="secret")
            error = perf(url, *arguments, REPLICATE_API_TOKEN="wrong")["error"]
            whole = perf(url, *arguments, "--output_method", "wait", REPLICATE_API_TOKEN="secret")["error"]
        [step] = result["steps"]
        assert (result["api"], step["requests"]["sent"]) == ("Replicate", 8)
        assert {code: found["count"] for code, found in step["failures"].items()} == {"stalled": 1}
        assert "secret" not in json.dumps(result)
        assert "HTTP 401 (You did not pass an authentication token)" in error["text"]
        assert "measured by its events alone; omit `--output_method wait`" in whole["text"]

    def test_prompts_of_a_file(self, runner, tmp_path):
        (tmp_path / "prompts").write_text("1 2 3\n<error>\n")
        result = perf(runner.url, "--prompts", tmp_path / "prompts", "--concurrency", "1", "--requests", "4")
        [step] = result["steps"]
        assert {code: found["count"] for code, found in step["failures"].items()} == {"E2405": 2}
        assert step["tokens"]["prompt"] == 2 * 3


class TestServersThatCannotBeMeasured:
    @pytest.mark.parametrize(
        ("address", "reason"),
        [
            ("ftp://127.0.0.1", "an address begins with"),
            ("grpc://127.0.0.1", "needs a port"),
            (f"http://{'x' * 64}", "no host has such a name"),
            ("http://a..b", "no host has such a name"),
            ("http://localhost:5000\r", "it has a character that cannot be seen"),
            ("http://127.0.0.1:{free}", "refused"),
            ("http://127.0.0.1:{free}/predictions", "not connected"),
            ("grpc://127.0.0.1:{free}", "not connected"),
        ],
    )
    def test_those_that_are_not_there(self, address, reason):
        error = perf(address.format(free=free_port()))["error"]
        assert error["code"] == ServerNotMeasured.code
        assert reason in error["text"]
        assert "Errno" not in error["text"]

    def test_one_whose_models_cannot_be_asked_for(self):
        with server() as url:
            text = perf(f"{url}/nowhere", "--target", "openai")["error"]["text"]
        assert "cannot be measured: /v1/models answered with 404. Check the address" in text

    def test_proxies_and_certificates_of_the_environment_are_not_in_the_way(self):
        nowhere = {"HTTP_PROXY": "http://127.0.0.1:1", "ALL_PROXY": "socks5://127.0.0.1:1", "NO_PROXY": ""}
        lowered = {name.lower(): value for name, value in nowhere.items()}
        with server() as url:
            result = perf(
                url, "--concurrency", "1", "--requests", "2", **nowhere, **lowered, SSL_CERT_FILE="/none"
            )
        assert [step["requests"]["succeeded"] for step in result["steps"]] == [2]

    def test_one_whose_first_request_fails(self):
        with server(failed_every=1) as url:
            error = perf(url)["error"]
        assert "failed: HTTP 500 (out of luck)" in error["text"]


AGREED = (
    "output_token_throughput",
    "request_throughput",
    "time_to_first_token",
    "inter_token_latency",
    "request_latency",
)
TRIES = 3  # the machine's host may do other things beside


def test_no_password_of_an_address_is_printed():
    class Metrics(QuietHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"up 1\n")

    with server() as url, LoopbackServer(Metrics) as metrics:
        address = url.replace("//", "//user:pass-word@")
        result = perf(address, "--metrics", f"{metrics.url}/?key=pass-word", "--requests", 1)
        refused = perf(address, "--metrics", f"{url}/?key=pass-word")
    assert result["steps"]
    assert refused["error"]["code"] == "E4300"
    assert "pass-word" not in json.dumps([result, refused])


@pytest.mark.timeout(900)  # aiperf's environment may have to be made
@pytest.mark.parametrize("endpoint", ["completions", "chat", "template"])
def test_it_agrees_with_aiperf(steady_runner, endpoint, tmp_path):
    """In one run, on one server: within 5% on throughput, and on the medians of the latencies."""
    for attempt in range(TRIES):
        differences = compare_with_aiperf(steady_runner, endpoint, tmp_path / str(attempt))
        if all(difference <= 0.05 for difference in differences.values()):
            return
    raise AssertionError(differences)


@pytest.fixture(scope="module")
def steady_runner(mock_archive, tmp_path_factory):
    directory = tmp_path_factory.mktemp("steady")
    # So slow that what a busy machine adds to a token or a request is far below a twentieth of it.
    engine = unpacked(mock_archive(tokens_per_second=25, time_to_first_token=0.8), directory)
    (engine / "tokenizer/chat_template.jinja").write_text("{{ messages[0].content }}")
    with cog_server("runner", directory / "log", COG_WEIGHTS=str(engine), API_KEYS=KEY) as running:
        running.engine = engine
        yield running


def compare_with_aiperf(runner, endpoint, directory):
    """How far our figure differs from aiperf's, as a share of it."""
    requests, concurrency, tokens = 16, 4, 40
    arguments = {
        "--model": "mock",
        "--url": runner.url,
        "--endpoint-type": endpoint,
        "--api-key": KEY,
        "--request-count": requests,
        "--concurrency": concurrency,
        "--tokenizer": runner.engine / "tokenizer",
        "--synthetic-input-tokens-mean": 10,
        "--output-tokens-mean": tokens,
        "--ui": "none",
        "--artifact-dir": directory,
    }
    path = {"completions": "/v1/completions", "chat": "/v1/chat/completions", "template": "/predictions"}[
        endpoint
    ]
    if endpoint == "template":  # aiperf is told what Cog's API takes and gives
        asked = '{"input": {"prompt": {{ text|tojson }}, "max_tokens": N}}'.replace("N", str(tokens))
        arguments |= {
            "--custom-endpoint": path,
            "--extra-inputs": json.dumps({"payload_template": asked, "response_field": "chunk"}),
        }
    options = [part for pair in arguments.items() for part in pair]
    profile(["--streaming", *options], directory.parent)
    theirs = json.loads((directory / "profile_export_aiperf.json").read_text())
    options = ["--concurrency", concurrency, "--requests", requests, "--n_output_tokens", tokens]
    [ours] = perf(f"{runner.url}{path}", *options, OPENAI_API_KEY=KEY)["steps"]
    assert ours["requests"]["succeeded"] == theirs["request_count"]["avg"] == requests
    assert theirs["output_sequence_length"]["avg"] == tokens
    figures = {
        name: (ours[name], theirs[name]["avg"])
        if name.endswith("throughput")
        else (ours[name]["p50"], theirs[name]["p50"])
        for name in AGREED
    }
    return {name: abs(mine / other - 1) for name, (mine, other) in figures.items()}
