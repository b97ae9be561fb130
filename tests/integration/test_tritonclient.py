"""The contract with NVIDIA's own client, `tritonclient`: both models, over gRPC and over HTTP."""

from __future__ import annotations

import queue

import httpx2
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from tests.integration.conftest import counted

BOTH = pytest.mark.parametrize("model", ["tensorrt_llm", "ensemble"])
INPUTS = {
    "tensorrt_llm": {"input_ids": [5, 6, 7], "input_lengths": 3, "request_output_len": 30, "streaming": True},
    "ensemble": {"text_input": "x", "max_tokens": 30, "stream": True},
}
KINDS = {bool: ("BOOL", np.bool_), int: ("INT32", np.int32), str: ("BYTES", np.object_)}


def tensors(api, model: str) -> list:
    made = []
    for name, value in INPUTS[model].items():
        values = value if isinstance(value, list) else [value]
        datatype, kind = KINDS[type(values[0])]
        made.append(api.InferInput(name, [1, len(values)], datatype))
        made[-1].set_data_from_numpy(np.array([values], dtype=kind))
    return made


class TestGrpc:
    @pytest.fixture
    def client(self, mock_triton):
        with triton_grpc.InferenceServerClient(f"127.0.0.1:{mock_triton.grpc_port}") as client:
            yield client

    @pytest.fixture
    def infer(self, client):
        def run(model: str) -> list:
            answers: queue.Queue = queue.Queue()
            client.start_stream(lambda result, error: answers.put(error or result))
            client.async_stream_infer(model, tensors(triton_grpc, model), enable_empty_final_response=True)
            found = []
            while not found or not found[-1].get_response().parameters["triton_final_response"].bool_param:
                found.append(answers.get(timeout=20))
            client.stop_stream()
            return found

        return run

    def test_text(self, infer):
        texts = [answer.as_numpy("text_output") for answer in infer("ensemble")]
        assert all(text.shape == (1, 1) for text in texts)
        assert b"".join(text[0, 0] for text in texts).decode() == counted(30)

    def test_tokens(self, infer):
        tokens = [answer.as_numpy("output_ids")[0, 0] for answer in infer("tensorrt_llm")]
        assert np.concatenate(tokens).tolist() == list(range(5, 35))

    @BOTH
    def test_metadata_config_and_statistics(self, client, model):
        assert client.is_model_ready(model)
        assert client.get_model_metadata(model).name == model
        assert client.get_model_config(model).config.backend == "engine_bridge"
        (statistics,) = client.get_inference_statistics(model).model_stats
        assert statistics.inference_stats.fail.count >= 0


class TestHttp:
    @pytest.fixture
    def client(self, mock_triton):
        with triton_http.InferenceServerClient(f"127.0.0.1:{mock_triton.http_port}") as client:
            yield client

    def test_the_server(self, client):
        assert client.is_server_live()
        assert client.is_server_ready()
        metadata = client.get_server_metadata()
        assert metadata["name"] == "triton"
        assert {"model_repository", "statistics"} <= set(metadata["extensions"])
        index = {entry["name"]: entry["state"] for entry in client.get_model_repository_index()}
        assert index == {"tensorrt_llm": "READY", "ensemble": "READY"}

    @BOTH
    def test_metadata_and_config(self, client, model):
        assert client.is_model_ready(model)
        metadata = client.get_model_metadata(model)
        assert (metadata["name"], metadata["versions"]) == (model, ["1"])
        declared = {tensor["name"]: tensor["datatype"] for tensor in metadata["inputs"]}
        assert {tensor.name(): tensor.datatype() for tensor in tensors(triton_http, model)}.items() <= (
            declared.items()
        )
        config = client.get_model_config(model)
        assert config["backend"] == "engine_bridge"
        assert config["model_transaction_policy"] == {"decoupled": True}
        assert [tensor["name"] for tensor in config["output"]] == [
            tensor["name"] for tensor in metadata["outputs"]
        ]

    @BOTH
    def test_infer_is_for_models_of_one_response(self, client, model):
        """As with NVIDIA's own backend: over HTTP, tokens come from generate and generate_stream."""
        with pytest.raises(InferenceServerException, match="decoupled transaction policy"):
            client.infer(model, tensors(triton_http, model))

    @BOTH
    def test_statistics_count_requests(self, client, mock_triton, model):
        def counts() -> tuple[int, int]:
            (statistics,) = client.get_inference_statistics(model)["model_stats"]
            assert (statistics["name"], statistics["version"]) == (model, "1")
            inference = statistics["inference_stats"]
            return inference["success"]["count"], inference["fail"]["count"]

        good, bad = counts()
        url = f"http://127.0.0.1:{mock_triton.http_port}/v2/models/{model}/generate_stream"
        httpx2.post(url, json=INPUTS[model]).raise_for_status()
        httpx2.post(url, json={**INPUTS[model], "beam_width": 4})
        mock_triton.wait_for(lambda: counts() == (good + 1, bad + 1))
