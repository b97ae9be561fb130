"""The contract with NVIDIA's own client, `tritonclient`: both models, over gRPC and over HTTP."""

from __future__ import annotations

import queue
from concurrent.futures import ThreadPoolExecutor

import httpx2
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from shared.cog.server import free_port
from tests.integration.conftest import counted, unpacked
from tests.support.triton import triton

MANY = 100_000  # tokens, for minutes
ERROR_ID = 3  # in a prompt: the mock fails half-way (its token <error>)
BOTH = pytest.mark.parametrize("model", ["tensorrt_llm", "ensemble"])
INPUTS = {
    "tensorrt_llm": {"input_ids": [7, 8, 9], "input_lengths": 3, "request_output_len": 30, "streaming": True},
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


@pytest.fixture(scope="module")
def one_answer(mock_archive, tmp_path_factory):
    directory = tmp_path_factory.mktemp("one-answer")
    engine = unpacked(mock_archive(tokens_per_second=300), directory)
    with triton(directory, engine, http_port=free_port(), decoupled=False, gated=True) as running:
        yield running


class TestOneAnswer:
    """With `decoupled_mode: False`: `infer()` gives the whole answer, over gRPC and HTTP."""

    @pytest.fixture(params=[triton_grpc, triton_http], ids=["grpc", "http"])
    def api(self, request):
        return request.param

    @pytest.fixture
    def client(self, one_answer, api):
        port = one_answer.grpc_port if api is triton_grpc else one_answer.http_port
        with api.InferenceServerClient(f"127.0.0.1:{port}") as client:
            yield client

    def test_text(self, client, api):
        answer = client.infer("ensemble", tensors(api, "ensemble"))
        assert answer.as_numpy("text_output").shape == (1, 1)
        assert answer.as_numpy("text_output")[0, 0].decode() == counted(30)
        assert answer.as_numpy("finish_reason").tolist() == [[3]]

    def test_tokens(self, client, api):
        answer = client.infer("tensorrt_llm", tensors(api, "tensorrt_llm"))
        assert answer.as_numpy("output_ids").tolist() == [[list(range(5, 35))]]
        assert answer.as_numpy("sequence_length").tolist() == [[30]]

    def test_many_at_once(self, client, api):
        def infer(_number: int) -> str:
            return client.infer("ensemble", tensors(api, "ensemble")).as_numpy("text_output")[0, 0].decode()

        if api is triton_http:  # whose clients are for one thread each
            pending = [client.async_infer("ensemble", tensors(api, "ensemble")) for _ in range(16)]
            texts = [one.get_result().as_numpy("text_output")[0, 0].decode() for one in pending]
        else:
            with ThreadPoolExecutor(16) as threads:
                texts = list(threads.map(infer, range(16)))
        assert texts == [counted(30)] * 16

    def test_a_failure_is_the_answer(self, client, api):
        """In the middle of it: what was generated until then is not an answer."""
        asked = tensors(api, "tensorrt_llm")
        asked[0].set_data_from_numpy(np.array([[7, ERROR_ID, 9]], dtype=np.int32))
        with pytest.raises(InferenceServerException) as failed:
            client.infer("tensorrt_llm", asked)
        assert failed.value.message().startswith("E2")

    def test_a_feed_is_refused(self, one_answer):
        with triton_grpc.InferenceServerClient(f"127.0.0.1:{one_answer.grpc_port}") as client:
            parameters = {"feed": 1}
            with pytest.raises(InferenceServerException, match="the parameter feed is not for clients"):
                client.infer("ensemble", tensors(triton_grpc, "ensemble"), parameters=parameters)

    def test_a_client_that_leaves_stops_the_engines_work(self, one_answer):
        """Triton's HTTP server does not see that somebody has left who waits for a first byte."""
        asked = tensors(triton_grpc, "ensemble")
        asked[1].set_data_from_numpy(np.array([[MANY]], dtype=np.int32))
        with triton_grpc.InferenceServerClient(f"127.0.0.1:{one_answer.grpc_port}") as client:
            call = client.async_infer("ensemble", asked, callback=lambda result, error: None)
            one_answer.engine.wait_in_flight(1)
            call.cancel()
            one_answer.engine.wait_in_flight(0)

    def test_the_decoupled_ones_stand_beside_them(self, one_answer, client):
        url = f"http://127.0.0.1:{one_answer.http_port}/v2/models/ensemble_decoupled/generate_stream"
        events = httpx2.post(url, json={"text_input": "x", "max_tokens": 30, "stream": True}).text
        assert events.count("data: ") > 1
        assert all(client.is_model_ready(f"{name}_decoupled") for name in ("tensorrt_llm", "ensemble"))


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
