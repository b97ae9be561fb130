"""What strangers send to a runner's Triton: it is answered with a code, and Triton does not notice."""

from __future__ import annotations

import gzip
import json
import os
import select
import signal
import socket
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import grpc
import httpx2
import numpy as np
import pytest
import tritonclient.http as triton_http
from tritonclient.grpc import service_pb2, service_pb2_grpc

from demo.cog_client import PredictionClient
from shared.cog.server import free_port
from shared.errors import (
    BodiesTooLarge,
    BodyTooLarge,
    BrowserRefused,
    ContentEncodingNotSupported,
    MethodNotAllowed,
    ShuttingDown,
    TooManyValues,
    TritonBodyInvalid,
    TritonCallUnknown,
    TritonPathUnknown,
)
from tests.integration.conftest import cog_server, counted
from tests.support.processes import descendants, is_alive, marked, pid_of

GENERATE = "/v2/models/ensemble/generate"
INFER = "/v2/models/ensemble/infer"
INDEX = "/v2/repository/index"
ROUNDS = 10
ONE_ANSWER = """
instantiate:
  server: {tensorrt_llm: {args: {decoupled_mode: "False"}}}
"""


class Runner:
    def __init__(self, kind, server, ports, answered) -> None:
        self.kind = kind
        self.answered = answered
        self.server = server
        self.ports = ports
        self.url = f"http://127.0.0.1:{ports['HTTP']}"
        self.http = httpx2.Client(base_url=self.url, timeout=30)

    def pid(self, part: str) -> int:
        return pid_of(self.server.mark, part)

    def text(self, tokens: int = 5) -> str:
        answer = self.http.post(GENERATE, json={"text_input": "x", "max_tokens": tokens})
        assert answer.status_code == 200, answer.text
        return answer.json()["text_output"]

    def refused(self, error, status: int, method: str = "POST", path: str = GENERATE, **sent) -> None:
        answer = self.http.request(method, path, **sent)
        assert answer.status_code == status, answer.text
        assert set(answer.json()) == {"error"}
        self.answered(answer.json()["error"], error)


def serving(mock_archive, directory, **environment):
    (directory / "server.yaml").write_text(ONE_ANSWER)
    ports = {name: free_port() for name in ("HTTP", "GRPC", "METRICS")}
    addresses = {f"TRITON_{name}_ADDRESS": f"127.0.0.1:{port}" for name, port in ports.items()}
    archive = str(mock_archive(tokens_per_second=300))
    fixed = {"COG_WEIGHTS": archive, "WEIGHTS_CACHE": str(directory / "cache")}
    fixed["COG_TRITON_CONFIG"] = str(directory / "server.yaml")
    return cog_server("runner", directory / "log", **fixed, **addresses, **environment), ports


@pytest.fixture(scope="module", params=["front", "cog"])
def runner(request, mock_archive, tmp_path_factory, answered):
    directory = tmp_path_factory.mktemp("gate")
    server, ports = serving(mock_archive, directory, SERVER=request.param)
    with server as running, (runner := Runner(request.param, running, ports, answered)).http:
        yield runner


@pytest.fixture
def unharmed(runner):
    """Triton, the engine and what stands before them are the same processes afterwards."""
    parts = ("bin/tritonserver", "runner.engines.process", "runner.front.triton")
    before = [runner.pid(part) for part in parts]
    yield
    assert [runner.pid(part) for part in parts] == before
    assert runner.text() == counted(5)


def chunked(path: str, size: int, count: int, port: int) -> bytes:
    """What comes back for a body in so many chunks."""
    piece = b"%x\r\n%b\r\n" % (size, b"[" * size)
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head.encode())
        connection.sendall(piece * count + b"0\r\n\r\n")
        return connection.recv(1 << 16)


@pytest.mark.usefixtures("unharmed")
class TestHostile:
    @pytest.mark.parametrize("path", [GENERATE, INFER, INDEX])
    def test_chunks_without_end(self, runner, path):
        """600,000 of one byte ended Triton."""
        for _ in range(ROUNDS):
            answer = chunked(path, 1, 600_000, runner.ports["HTTP"])
            assert answer.startswith(b"HTTP/1.1 400 ")
            assert b"E1342 TritonBodyInvalid: " in answer

    @pytest.mark.parametrize("path", [GENERATE, INFER, INDEX])
    def test_json_nested_without_end(self, runner, path):
        """1,000,000 levels ended Triton."""
        for body in (b"[" * 1_000_000, b'{"a":' * 1_000_000):
            for _ in range(ROUNDS):
                answer = runner.http.post(path, content=body)
                assert answer.status_code == 400
                assert answer.json()["error"].startswith("E1342 TritonBodyInvalid: ")

    def test_nested_json_behind_a_lie(self, runner):
        """Only /infer heeds the header: elsewhere all of the body is JSON."""
        for path, status in ((GENERATE, 400), (INDEX, 400), (INFER, 400)):
            headers = {"Inference-Header-Content-Length": "0"}
            answer = runner.http.post(path, content=b"[" * 1_000_000, headers=headers)
            assert answer.status_code == status

    def test_a_length_of_json_beyond_the_body(self, runner):
        error = TritonBodyInvalid(reason="its Inference-Header-Content-Length is no part of its length")
        for length in ("3", "-1", "9" * 5000, "x"):
            headers = {"Inference-Header-Content-Length": length}
            runner.refused(error, 400, path=INFER, content=b"{}", headers=headers)

    def test_more_values_than_any_prompt(self, runner):
        runner.refused(TooManyValues(limit=1 << 21), 413, content=b"[" + b"1," * (1 << 21) + b"1]")

    def test_a_shape_of_more_than_is_there(self, runner):
        """Triton wrote 4 GB for it."""
        tensors = [
            {"name": "text_input", "datatype": "BYTES", "shape": [1, 1], "data": ["x"]},
            {"name": "max_tokens", "datatype": "INT32", "shape": [1 << 30, 1], "data": [5, 5]},
        ]
        error = TritonBodyInvalid(reason="a tensor's shape has more elements than the body")
        runner.refused(error, 400, path=INFER, json={"inputs": tensors})

    def test_a_bomb(self, runner):
        bomb = gzip.compress(bytes(1 << 30), compresslevel=1)
        runner.refused(BodyTooLarge(limit=16 << 20), 413, content=bomb, headers={"Content-Encoding": "gzip"})

    def test_what_is_not_compressed_as_it_says(self, runner):
        for encoding, body in {"gzip": b"{}", "deflate": gzip.compress(b"{}")[:-1]}.items():
            error = TritonBodyInvalid(reason=f"it is not {encoding}")
            runner.refused(error, 400, content=body, headers={"Content-Encoding": encoding})
        unknown = ContentEncodingNotSupported(encoding="br")
        runner.refused(unknown, 415, content=b"{}", headers={"Content-Encoding": "br"})

    def test_too_large_a_body(self, runner):
        runner.refused(BodyTooLarge(limit=16 << 20), 413, content=bytes((16 << 20) + 1))

    def test_more_bodies_than_there_is_memory_for(self, runner):
        head = f"POST {GENERATE} HTTP/1.1\r\nHost: x\r\nContent-Length: {16 << 20}\r\n\r\n".encode()
        with ExitStack() as stack:
            connections = []
            for _ in range(17):  # one client may have 256 MiB
                address = ("127.0.0.1", runner.ports["HTTP"])
                connections.append(stack.enter_context(socket.create_connection(address)))
                connections[-1].sendall(head + bytes((16 << 20) - 1))
            # Large bodies come in piece by piece, so any of them may be the one too many.
            refused, *_ = select.select(connections, [], [], 50)
            answer = refused[0].recv(1 << 16)
            assert answer.startswith(b"HTTP/1.1 503 ")
            body = json.loads(answer.partition(b"\r\n\r\n")[2])
            runner.answered(body["error"], BodiesTooLarge(limit=1 << 29))
        until(lambda: runner.http.post(INDEX, content=b"{}").status_code == 200)

    @pytest.mark.parametrize(
        ("name", "value"),
        [("Origin", "https://x.example"), ("Origin", "null"), ("Sec-Fetch-Site", "cross-site")],
    )
    def test_web_pages(self, runner, name, value):
        body = json.dumps({"text_input": "x", "max_tokens": 5}).encode()
        headers = {name: value, "Content-Type": "text/plain"}
        runner.refused(BrowserRefused(header=name), 403, content=body, headers=headers)
        runner.refused(BrowserRefused(header=name), 403, "GET", "/v2", headers=headers)

    def test_what_is_not_forwarded(self, runner):
        for path in ("/v2/logging", "/v2/cudasharedmemory/status", "/metrics", "/", "/v2/models/a%2fb/ready"):
            error = TritonPathUnknown(path=path.replace("%2f", "/"))
            runner.refused(error, 404, "GET", path)
        wrong = MethodNotAllowed(path=GENERATE, method="DELETE", allowed="POST")
        runner.refused(wrong, 405, "DELETE")

    def test_calls_that_are_not_forwarded(self, runner):
        with grpc.insecure_channel(f"127.0.0.1:{runner.ports['GRPC']}") as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            with pytest.raises(grpc.RpcError) as refused:
                stub.LogSettings(service_pb2.LogSettingsRequest())
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
        call = "/inference.GRPCInferenceService/LogSettings"
        runner.answered(refused.value.details(), TritonCallUnknown(call=call))

    def test_streams_that_are_broken_off(self, runner):
        """Triton may free twice what they hold."""
        with grpc.insecure_channel(f"127.0.0.1:{runner.ports['GRPC']}") as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            request = service_pb2.ModelInferRequest(model_name="ensemble_decoupled")
            for name, datatype, raw in (
                ("text_input", "BYTES", b"\x01\0\0\0x"),
                ("max_tokens", "INT32", (1_000_000).to_bytes(4, "little")),
                ("stream", "BOOL", b"\x01"),
            ):
                request.inputs.add(name=name, datatype=datatype, shape=[1, 1])
                request.raw_input_contents.append(raw)
            for number in range(30 * ROUNDS):
                call = stub.ModelStreamInfer(iter([request] * (number % 3 + 1)))
                if number % 2:
                    next(call)
                call.cancel()
            until(lambda: is_idle(runner))


def until(condition, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_idle(runner) -> bool:
    """Whether the engine does nothing; Cog's server cannot say."""
    if runner.kind == "cog":
        return True
    text = httpx2.get(f"{runner.server.url}/metrics", timeout=30).text
    return "cog_triton_engine_active_requests 0.0" in text


def listeners(pids) -> set[int]:
    """The TCP ports on which these processes listen."""
    inodes = set()
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                name = str(descriptor.readlink())
                if name.startswith("socket:["):
                    inodes.add(name[8:-1])
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.add(int(fields[1].rpartition(":")[2], 16))
    return found


def test_only_what_was_asked_for_is_open(runner):
    pids = {runner.server.process.pid, *descendants(runner.server.process.pid)}
    assert listeners(pids) == {runner.server.port, *runner.ports.values()}


def test_no_command_line_has_a_key(runner):
    commands = " ".join(marked(runner.server.mark).values())
    assert "bin/tritonserver" in commands
    assert "restricted" not in commands


def test_nothing_is_open_that_was_not_asked_for(mock_archive, tmp_path):
    settings = {"COG_WEIGHTS": str(mock_archive()), "WEIGHTS_CACHE": str(tmp_path / "cache")}
    with cog_server("runner", tmp_path / "log", **settings) as server:
        assert listeners({server.process.pid, *descendants(server.process.pid)}) == {server.port}
        assert "runner.front.triton" not in str(marked(server.mark))
        answer = PredictionClient(server.url).predict({"prompt": "x", "max_tokens": 5})
        assert "".join(answer["output"]) == counted(5)


def test_a_stream_that_outlasts_the_runner_is_told_so(mock_archive, tmp_path, answered):
    serves, ports = serving(mock_archive, tmp_path)
    asked = {"text_input": "x", "max_tokens": 1_000_000, "stream": True}
    url = f"http://127.0.0.1:{ports['HTTP']}/v2/models/ensemble_decoupled/generate_stream"
    with serves as server, httpx2.stream("POST", url, json=asked, timeout=60) as answer:
        lines = answer.iter_lines()
        next(lines)
        server.process.send_signal(signal.SIGTERM)
        *_, last = filter(None, lines)
    answered(json.loads(last.removeprefix("data: "))["error"], ShuttingDown())
    assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.mark.parametrize("algorithm", [None, "gzip", "deflate"])
@pytest.mark.parametrize("binary", [True, False])
def test_tritonclient_with_every_form_of_body(runner, algorithm, binary):
    text = triton_http.InferInput("text_input", [1, 1], "BYTES")
    tokens = triton_http.InferInput("max_tokens", [1, 1], "INT32")
    text.set_data_from_numpy(np.array([["x"]], dtype=np.object_), binary_data=binary)
    tokens.set_data_from_numpy(np.array([[50]], dtype=np.int32), binary_data=binary)
    output = triton_http.InferRequestedOutput("text_output", binary_data=binary)
    with triton_http.InferenceServerClient(f"127.0.0.1:{runner.ports['HTTP']}") as client:
        answer = client.infer(
            "ensemble",
            [text, tokens],
            outputs=[output],
            request_compression_algorithm=algorithm,
            response_compression_algorithm=algorithm,
        )
    found = answer.as_numpy("text_output")[0, 0]
    assert (found.decode() if isinstance(found, bytes) else found) == counted(50)


def test_a_killed_triton_comes_back(runner):
    """What it left of its sockets is in nobody's way."""
    for part in ("bin/tritonserver", "runner.front.triton"):
        killed = runner.pid(part)
        os.kill(killed, signal.SIGKILL)
        until(lambda pid=killed: not is_alive(pid))
        if part == "bin/tritonserver":
            answer = runner.http.post(GENERATE, json={"text_input": "x", "max_tokens": 5})
            if answer.status_code != 200:
                assert answer.json()["error"].startswith("E2105 TritonUnavailable: ")
                assert answer.status_code == 503

        def answers() -> bool:
            try:
                return runner.http.get("/v2/models/ensemble/ready").status_code == 200
            except httpx2.TransportError:
                return False

        until(answers)
    until(lambda: "0 1 2" in runner.http.post(GENERATE, json={"text_input": "x", "max_tokens": 5}).text)
