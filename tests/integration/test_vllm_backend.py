"""The calls that clients of Triton's own vLLM backend make, as its documentation and its samples have them."""

from __future__ import annotations

import asyncio
import json
import queue

import httpx2
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.grpc.aio as triton_aio
from tritonclient.utils import InferenceServerException

from shared.cog.server import free_port
from tests.integration.conftest import MOCK_RATE, counted, unpacked
from tests.support.triton import triton

MODEL = "llama3-70b"
KINDS = {bool: ("BOOL", np.bool_), str: ("BYTES", np.object_)}
MANY = 1_000_000  # tokens


@pytest.fixture(scope="module")
def server(mock_archive, tmp_path_factory):
    """A Triton with the model beside those of TensorRT-LLM's contract; the engine is the mock."""
    directory = tmp_path_factory.mktemp("vllm-backend")
    engine = unpacked(mock_archive(tokens_per_second=MOCK_RATE), directory)
    with triton(directory, engine, http_port=free_port(), backend_model=MODEL, gated=True) as running:
        yield running


@pytest.fixture(scope="module")
def http(server):
    with httpx2.Client(base_url=f"http://127.0.0.1:{server.http_port}/v2/models/{MODEL}", timeout=30) as one:
        yield one


@pytest.fixture
def client(server):
    with triton_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as one:
        yield one


def tensors(api, given: dict) -> list:
    made = []
    for name, value in given.items():
        datatype, kind = KINDS[type(value)]
        made.append(api.InferInput(name, [1], datatype))
        made[-1].set_data_from_numpy(np.array([value], dtype=kind))
    return made


@pytest.fixture
def infer(client):
    """All responses of a stream, and an error as what is raised."""

    def run(*, outputs=("text_output",), **given) -> list:
        answers: queue.Queue = queue.Queue()
        client.start_stream(lambda result, error: answers.put(error or result))
        client.async_stream_infer(
            MODEL,
            tensors(triton_grpc, given),
            outputs=[triton_grpc.InferRequestedOutput(name) for name in outputs] or None,
            enable_empty_final_response=True,
        )
        found = []
        while not found or not found[-1].get_response().parameters["triton_final_response"].bool_param:
            found.append(answers.get(timeout=20))
            if isinstance(found[-1], InferenceServerException):
                raise found[-1]
        client.stop_stream()
        return found

    return run


def texts(found: list) -> list[str]:
    made = [one.as_numpy("text_output") for one in found]
    assert all(text.shape == (1,) for text in made)
    return [text[0].decode() for text in made]


class TestDocumentation:
    def test_generate_with_parameters_of_the_request(self, http):
        """curl -d '{"text_input": ..., "parameters": {"stream": false, "temperature": 0}}'"""
        body = {
            "text_input": "What is Triton Inference Server?",
            "parameters": {"stream": False, "temperature": 0},
        }
        answer = http.post("/generate", json=body).json()
        assert answer["model_name"] == MODEL
        assert answer["text_output"] == "What is Triton Inference Server?" + counted(16)

    def test_generate_without_the_prompt(self, http):
        parameters = {"stream": False, "temperature": 0, "exclude_input_in_output": True, "max_tokens": 5}
        answer = http.post("/generate", json={"text_input": "x", "parameters": parameters}).json()
        assert answer["text_output"] == counted(5)

    def test_generate_stream(self, http):
        body = {"text_input": "x", "parameters": {"stream": True, "temperature": 0.5, "max_tokens": 40}}
        with http.stream("POST", "/generate_stream", json=body) as answer:
            events = [json.loads(line.removeprefix("data: ")) for line in answer.iter_lines() if line]
        assert "".join(event.get("text_output", str(event)) for event in events) == counted(40)
        assert len(events) > 5

    def test_the_samples_client(self, infer):
        """Its four inputs; text comes as it is written."""
        found = infer(
            text_input="Hello, my name is",
            stream=True,
            sampling_parameters=json.dumps({"temperature": "0.1", "top_p": "0.95", "max_tokens": "100"}),
            exclude_input_in_output=True,
        )
        assert "".join(texts(found)) == counted(100)
        assert len(found) > 5

    def test_the_samples_client_as_it_is_written(self, server):
        """asyncio, an iterator of requests, one response where nothing streams."""
        assert asyncio.run(self._as_it_is_written(server)) == {
            str(number): f"prompt {number}{counted(4 + number)}" for number in range(3)
        }

    async def _as_it_is_written(self, server) -> dict[str, str]:

        async def requests():
            for number in range(3):
                yield {
                    "model_name": MODEL,
                    "inputs": tensors(
                        triton_aio,
                        {
                            "text_input": f"prompt {number}",
                            "stream": False,
                            "sampling_parameters": json.dumps({"max_tokens": 4 + number}),
                            "exclude_input_in_output": False,
                        },
                    ),
                    "outputs": [triton_aio.InferRequestedOutput("text_output")],
                    "request_id": str(number),
                }

        found = {}
        async with triton_aio.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
            async for result, error in client.stream_infer(requests()):
                assert error is None
                found[result.get_response().id] = result.as_numpy("text_output")[0].decode()
                if len(found) == 3:
                    break
        return found

    def test_metadata_and_config(self, client):
        metadata = client.get_model_metadata(MODEL)
        assert {(one.name, one.datatype, *one.shape) for one in metadata.inputs} >= {
            ("text_input", "BYTES", 1),
            ("stream", "BOOL", 1),
            ("sampling_parameters", "BYTES", 1),
            ("exclude_input_in_output", "BOOL", 1),
            ("image", "BYTES", -1),
            ("return_num_output_tokens", "BOOL", 1),
        }
        assert {one.name: one.datatype for one in metadata.outputs} == {
            "text_output": "BYTES",
            "finish_reason": "BYTES",
            "cumulative_logprob": "FP32",
            "logprobs": "BYTES",
            "num_input_tokens": "UINT32",
            "num_output_tokens": "UINT32",
        }
        config = client.get_model_config(MODEL).config
        assert (config.max_batch_size, config.model_transaction_policy.decoupled) == (0, True)


class TestAdditionalOutputs:
    """vllm_backend: docs/additional_outputs.md."""

    ALL = (
        "text_output",
        "finish_reason",
        "cumulative_logprob",
        "logprobs",
        "num_input_tokens",
        "num_output_tokens",
    )

    def test_none_is_given_unasked(self, infer):
        (only,) = infer(text_input="x", outputs=(), sampling_parameters='{"max_tokens": 3}')
        assert [output.name for output in only.get_response().outputs] == ["text_output"]

    @pytest.mark.parametrize("stream", [True, False])
    def test_counts_and_reasons(self, infer, stream):
        found = infer(
            text_input="a b c",
            stream=stream,
            sampling_parameters='{"max_tokens": 50}',
            return_finish_reason=True,
            return_num_input_tokens=True,
            return_num_output_tokens=True,
            outputs=self.ALL,
        )
        assert sum(int(one.as_numpy("num_output_tokens")[0]) for one in found) == 50
        assert {int(one.as_numpy("num_input_tokens")[0]) for one in found} == {3}
        reasons = [one.as_numpy("finish_reason")[0].decode() for one in found]
        assert reasons[-1] == "length"
        assert set(reasons[:-1]) == ({"None"} if stream else set())
        assert all(one.as_numpy("logprobs") is None for one in found)

    def test_log_probabilities(self, infer):
        (found,) = infer(
            text_input="x",
            sampling_parameters='{"max_tokens": 4, "logprobs": 2}',
            return_cumulative_logprob=True,
            return_logprobs=True,
            outputs=self.ALL,
        )
        told = json.loads(found.as_numpy("logprobs")[0])
        assert len(told) == 4
        chosen = [max(one.values(), key=lambda each: each["logprob"]) for one in told]
        assert all(set(one) == {"logprob", "rank", "decoded_token"} for one in chosen)
        assert found.as_numpy("cumulative_logprob")[0] < 0

    def test_no_log_probabilities_were_asked_of_the_engine(self, infer):
        (found,) = infer(
            text_input="x", sampling_parameters='{"max_tokens": 4}', return_logprobs=True, outputs=self.ALL
        )
        assert json.loads(found.as_numpy("logprobs")[0]) is None


class TestSamplingParameters:
    @pytest.mark.parametrize("stream", [True, False])
    def test_stop(self, infer, stream):
        found = infer(
            text_input="x",
            stream=stream,
            sampling_parameters=json.dumps({"max_tokens": MANY, "stop": ["zzz", "11"]}),
            exclude_input_in_output=True,
            return_finish_reason=True,
            outputs=("text_output", "finish_reason"),
        )
        assert "".join(texts(found)) == counted(11) + " "
        assert found[-1].as_numpy("finish_reason")[0] == b"stop"

    def test_a_stop_token_is_not_in_the_text(self, infer):
        (found,) = infer(
            text_input="x",
            sampling_parameters=json.dumps({"max_tokens": 50, "stop_token_ids": [14]}),
            exclude_input_in_output=True,
        )
        assert texts([found]) == [counted(9)]  # the mock's first word is token 5

    @pytest.mark.parametrize("seed", [2**53 + 1, 2**64 - 1, "18446744073709551615"])
    def test_a_seed_of_64_bits(self, infer, seed):
        (found,) = infer(text_input="x", sampling_parameters=json.dumps({"max_tokens": 2, "seed": seed}))
        assert texts([found]) == [f"x{counted(2)}"]

    def test_what_sampling_is_asked_for(self, infer):
        parameters = {"max_tokens": 5, "ignore_eos": True, "min_tokens": 2, "seed": 1, "top_k": -1, "n": 1}
        (found,) = infer(text_input="x", sampling_parameters=json.dumps(parameters))
        assert texts([found]) == [f"x{counted(5)}"]

    @pytest.mark.parametrize(
        ("parameters", "code", "told"),
        [
            ("[]", "E2403", "sampling_parameters is not a JSON object"),
            ("{", "E2403", "sampling_parameters is not a JSON object"),
            ('{"max_token": 5}', "E2403", "no sampling parameter 'max_token' (did you mean max_tokens?)"),
            ('{"max_tokens": "many"}', "E2403", "max_tokens is not a whole number of 64 bits"),
            (f'{{"max_tokens": {10**400}}}', "E2403", "max_tokens is not a whole number of 64 bits"),
            (f'{{"logit_bias": {{"5": {10**400}}}}}', "E2403", "logit_bias is not an object of numbers"),
            ('{"temperature": NaN}', "E2403", "temperature is not a number"),
            ('{"max_tokens": 2.5}', "E2403", "max_tokens is not a whole number of 64 bits"),
            ('{"max_tokens": 0}', "E1104", "max_tokens"),
            ('{"temperature": true}', "E2403", "temperature is not a number"),
            ('{"stop": 5}', "E2403", "stop is not a text, or a list of texts"),
            ('{"logit_bias": [1]}', "E2403", "logit_bias is not an object of numbers"),
            ('{"n": 2}', "E2404", "sampling_parameters.n"),
            ('{"prompt_logprobs": 1}', "E2404", "sampling_parameters.prompt_logprobs"),
            ('{"bad_words": ["3"]}', "E1103", "bad_words"),
            ('{"lora_name": "law"}', "E1103", "lora"),
            ('{"lora_name": 5}', "E2403", "lora_name is not a text"),
            ('{"structured_outputs": {"regex": "[0-9]+"}}', "E1103", "structured_output"),
            (json.dumps({"structured_outputs": json.dumps({"choice": ["a"]})}), "E1103", "structured_output"),
            ('{"structured_outputs": {"regexp": "a"}}', "E1105", "did you mean regex?"),
            ('{"structured_outputs": "[1]"}', "E2403", "structured_outputs is not a JSON object"),
        ],
    )
    def test_what_is_refused(self, infer, parameters, code, told):
        with pytest.raises(InferenceServerException) as caught:
            infer(text_input="x", sampling_parameters=parameters)
        assert code in str(caught.value)
        assert told in str(caught.value)

    @pytest.mark.parametrize("value", [2**64, -(2**63) - 1, 10**300])
    @pytest.mark.parametrize("name", ["max_tokens", "min_tokens", "seed", "top_k", "logprobs"])
    def test_a_whole_number_of_more_than_64_bits(self, infer, name, value):
        with pytest.raises(
            InferenceServerException, match=rf"E2403 .*{name} is not a whole number of 64 bits"
        ):
            infer(text_input="x", sampling_parameters=json.dumps({"max_tokens": 2, name: value}))

    def test_a_prompt_in_what_is_streamed_is_refused(self, infer):
        with pytest.raises(InferenceServerException, match="E2403"):
            infer(text_input="x", stream=True, exclude_input_in_output=False)

    def test_images_are_refused(self, infer):
        with pytest.raises(InferenceServerException, match=r"E2404 .*image"):
            infer(text_input="x", image="aGVsbG8=")

    def test_a_parameter_of_the_request_that_there_is_not(self, http):
        answer = http.post("/generate", json={"text_input": "x", "parameters": {"temprature": 0}})
        assert answer.status_code == 400
        assert "did you mean temperature?" in answer.text

    def test_no_prompt(self, http):
        assert "text_input" in http.post("/generate", json={"parameters": {"stream": False}}).text


def test_who_leaves_is_cancelled(server, client):
    client.start_stream(lambda result, error: None)
    given = {"text_input": "x", "stream": True, "sampling_parameters": json.dumps({"max_tokens": MANY})}
    client.async_stream_infer(MODEL, tensors(triton_grpc, given))
    server.engine.wait_in_flight(1)
    client.stop_stream(cancel_requests=True)
    server.engine.wait_in_flight(0)


def test_many_at_once_lose_nothing(server):
    """Each response is of one request, whole and in order."""
    found: dict[str, list[str]] = {}
    ended: queue.Queue = queue.Queue()

    def take(result, error):
        assert error is None
        response = result.get_response()
        if response.outputs:
            found.setdefault(response.id, []).append(result.as_numpy("text_output")[0].decode())
        if response.parameters["triton_final_response"].bool_param:
            ended.put(response.id)

    with triton_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        client.start_stream(take)
        for number in range(32):
            parameters = json.dumps({"max_tokens": 20 + number})
            given = {"text_input": f"{number}", "stream": True, "sampling_parameters": parameters}
            client.async_stream_infer(
                MODEL, tensors(triton_grpc, given), request_id=str(number), enable_empty_final_response=True
            )
        for _ in range(32):
            ended.get(timeout=60)
        client.stop_stream()
    assert {number: "".join(pieces) for number, pieces in found.items()} == {
        str(number): counted(20 + number) for number in range(32)
    }
