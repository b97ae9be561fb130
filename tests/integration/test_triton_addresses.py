"""Where a runner's Triton listens, as the settings say it, and what it lets a stranger do there."""

from __future__ import annotations

import socket

import httpx2
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
from tritonclient.utils import InferenceServerException

from demo.cog_client import PredictionClient
from shared.cog.server import free_port
from shared.errors import CogTritonError, PortInUse
from tests.integration.conftest import cog_server, counted
from tests.support.triton import is_open

ONE_ANSWER = """
instantiate:
  server: {tensorrt_llm: {args: {decoupled_mode: "False"}}}
"""


@pytest.fixture(scope="module")
def opened(mock_archive, tmp_path_factory):
    """A runner whose Triton listens where the settings say, and gives one answer: (its HTTP client, ports)."""
    directory = tmp_path_factory.mktemp("opened")
    (directory / "server.yaml").write_text(ONE_ANSWER)
    ports = {name: free_port() for name in ("HTTP", "GRPC", "METRICS")}
    environment = {f"TRITON_{name}_ADDRESS": f"0.0.0.0:{port}" for name, port in ports.items()}
    environment |= {"COG_WEIGHTS": str(mock_archive()), "WEIGHTS_CACHE": str(directory / "cache")}
    environment["COG_TRITON_CONFIG"] = str(directory / "server.yaml")
    with cog_server("runner", directory / "log", **environment) as server:
        yield server, ports


def test_a_runner_is_ready_when_the_ports_are_open_that_it_was_told_to_open(opened):
    assert all(is_open(port) for port in opened[1].values())


def test_it_answers_its_own_clients_and_tritons(opened):
    server, ports = opened
    answer = PredictionClient(server.url).predict({"prompt": "x", "max_tokens": 5})
    assert "".join(answer["output"]) == counted(5)
    with triton_grpc.InferenceServerClient(f"127.0.0.1:{ports['GRPC']}") as client:
        text = triton_grpc.InferInput("text_input", [1, 1], "BYTES")
        tokens = triton_grpc.InferInput("max_tokens", [1, 1], "INT32")
        text.set_data_from_numpy(np.array([[b"x"]], dtype=np.object_))
        tokens.set_data_from_numpy(np.array([[5]], dtype=np.int32))
        assert client.infer("ensemble", [text, tokens]).as_numpy("text_output")[0, 0] == counted(5).encode()
    url = f"http://127.0.0.1:{ports['HTTP']}/v2/models/ensemble/generate"
    answer = httpx2.post(url, json={"text_input": "x", "max_tokens": 5}, timeout=20).json()
    assert answer["text_output"] == counted(5)
    assert "nv_inference_count" in httpx2.get(f"http://127.0.0.1:{ports['METRICS']}/metrics").text


def test_they_can_be_of_ipv6(mock_archive, tmp_path):
    ports = {name: free_port() for name in ("HTTP", "GRPC", "METRICS")}
    environment = {f"TRITON_{name}_ADDRESS": f"[::1]:{port}" for name, port in ports.items()}
    environment |= {"COG_WEIGHTS": str(mock_archive()), "WEIGHTS_CACHE": str(tmp_path / "cache")}
    with cog_server("runner", tmp_path / "log", **environment) as server:
        assert httpx2.get(f"http://[::1]:{ports['HTTP']}/v2/health/ready").status_code == 200
        assert "nv_inference_count" in httpx2.get(f"http://[::1]:{ports['METRICS']}/metrics").text
        assert "nv_inference_count" in httpx2.get(f"{server.url}/metrics").text
        with triton_grpc.InferenceServerClient(f"[::1]:{ports['GRPC']}") as client:
            assert client.is_server_ready()


def test_nobody_has_triton_write_files_or_read_memory(opened):
    ports = opened[1]
    region = {"key": "/region", "offset": 0, "byte_size": 64}
    with httpx2.Client(base_url=f"http://127.0.0.1:{ports['HTTP']}") as http:
        for path, body in {
            "/v2/logging": {"log_verbose_level": 1},
            "/v2/trace/setting": {"trace_level": ["TIMESTAMPS"]},
            "/v2/systemsharedmemory/region/x/register": region,
            "/v2/repository/models/ensemble/unload": {},
            "/v2/models/../logging": {},
            "/v2/models/%2e%2e/infer": {},
            "//v2/logging": {},
        }.items():
            answer = http.send(httpx2.Request("POST", f"{http.base_url}{path}", json=body))
            assert answer.status_code == 404
            assert answer.json()["error"].startswith("E1341 TritonPathUnknown: ")
    with triton_grpc.InferenceServerClient(f"127.0.0.1:{ports['GRPC']}") as client:
        for refused in (
            lambda: client.update_log_settings({"log_verbose_level": 1}),
            lambda: client.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"]}),
            lambda: client.register_system_shared_memory("x", "/region", 64),
            lambda: client.unload_model("ensemble"),
            client.get_log_settings,
        ):
            with pytest.raises(InferenceServerException, match=r"UNIMPLEMENTED.*E1343 TritonCallUnknown: "):
                refused()


def test_a_port_of_triton_that_is_taken_is_named(mock_archive, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        environment = {"COG_WEIGHTS": str(mock_archive()), "TRITON_GRPC_ADDRESS": f"127.0.0.1:{port}"}
        with pytest.raises(CogTritonError) as failed, cog_server("runner", tmp_path / "log", **environment):
            pass
    assert str(PortInUse(port=port)) in str(failed.value)
