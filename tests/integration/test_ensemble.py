"""Both models over plain HTTP, as curl and perf tools use them; test_tritonclient.py: with NVIDIA's own client."""

from __future__ import annotations

import json

import httpx2
import numpy as np
import pytest

from shared.cog.server import free_port
from shared.errors import MalformedRequest, ParameterNotHonoured, TensorNotSupported
from shared.layout import PROJECT_ROOT
from tests.integration.conftest import MOCK_RATE as RATE
from tests.integration.conftest import counted
from tests.support.generate_streams import run_generate_streams
from tests.support.processes import marked
from tests.support.tensorrt_llm_engine import STAND_IN, stand_in_tokens, write_engine
from tests.support.triton import triton

STREAMS = 64


@pytest.fixture(scope="module")
def server(mock_triton):
    return mock_triton


@pytest.fixture(scope="module")
def http(server):
    with httpx2.Client(base_url=f"http://127.0.0.1:{server.http_port}/v2", timeout=30) as client:
        yield client


def generate(http, model: str, **inputs):
    return http.post(f"/models/{model}/generate", json=inputs).json()


def events(http, model: str, **inputs) -> list[dict]:
    with http.stream("POST", f"/models/{model}/generate_stream", json=inputs) as answer:
        return [json.loads(line.removeprefix("data: ")) for line in answer.iter_lines() if line]


def test_one_engine_process_serves_both_models(server):
    engines = [pid for pid, command in marked(server.mark).items() if "runner.engines.process" in command]
    assert engines == [server.engine_pid()]


class TestHttp:
    def test_health(self, http):
        for path in ("health/live", "health/ready", "models/ensemble/ready", "models/tensorrt_llm/ready"):
            assert http.get(path).status_code == 200

    @pytest.mark.parametrize(
        ("model", "inputs", "outputs"),
        [
            ("tensorrt_llm", {"input_ids", "input_lengths", "request_output_len", "streaming"}, {"output_ids", "sequence_length"}),
            ("ensemble", {"text_input", "max_tokens", "stop_words", "bad_words", "stream", "top_k"}, {"text_output"}),
        ],
    )  # fmt: skip
    def test_metadata_and_config(self, http, model, inputs, outputs):
        metadata = http.get(f"models/{model}").json()
        assert inputs <= {tensor["name"] for tensor in metadata["inputs"]}
        assert outputs <= {tensor["name"] for tensor in metadata["outputs"]}
        assert http.get(f"models/{model}/config").json()["model_transaction_policy"] == {"decoupled": True}

    def test_statistics_count_requests(self, http, server):
        def successes() -> int:
            (statistics,) = http.get("models/ensemble/stats").json()["model_stats"]
            return statistics["inference_stats"]["success"]["count"]

        before = successes()
        generate(http, "ensemble", text_input="x", max_tokens=3)
        server.wait_for(lambda: successes() == before + 1)

    def test_the_curl_line_of_tensorrt_llm(self, http):
        answer = generate(
            http,
            "ensemble",
            text_input="What is machine learning?",
            max_tokens=20,
            bad_words="",
            stop_words="",
        )
        assert (answer["model_name"], answer["text_output"]) == ("ensemble", counted(20))

    def test_text_comes_as_it_is_written(self, http):
        answers = events(http, "ensemble", text_input="x", max_tokens=100, stream=True)
        assert "".join(answer["text_output"] for answer in answers) == counted(100)
        assert len(answers) > 5
        assert {answer["finish_reason"] for answer in answers[:-1]} == {0}
        assert answers[-1]["finish_reason"] == 3

    @pytest.mark.parametrize("stream", [True, False])
    def test_stop_words_end_the_text_and_are_not_part_of_it(self, http, server, stream):
        inputs = {"text_input": "x", "max_tokens": 1_000_000, "stop_words": ["zzz", "11"], "stream": stream}
        answers = events(http, "ensemble", **inputs)
        assert "".join(answer["text_output"] for answer in answers) == counted(11) + " "
        assert answers[-1]["finish_reason"] == 2
        server.engine.wait_in_flight(0)

    def test_sampling_parameters_are_taken(self, http):
        answer = generate(
            http, "ensemble", text_input="x", max_tokens=8, end_id=8, min_tokens=5, temperature=0.7, top_k=5,
            top_p=0.9, seed=1, length_penalty=1.0, repetition_penalty=1.1, presence_penalty=0.1,
            frequency_penalty=0.1, pad_id=2, beam_width=1,
        )  # fmt: skip
        assert (answer["text_output"], answer["finish_reason"]) == (counted(8), 3)

    def test_an_end_id_ends_the_text(self, http):
        answer = generate(http, "ensemble", text_input="x", max_tokens=100, end_id=8)
        assert (answer["text_output"], answer["finish_reason"]) == (counted(3), 1)

    def test_tokens(self, http):
        inputs = {"input_ids": [7, 8], "input_lengths": 2, "request_output_len": 4}
        assert generate(http, "tensorrt_llm", **inputs)["output_ids"] == [5, 6, 7, 8]

    def test_tokens_come_as_they_are_made(self, http):
        inputs = {"input_ids": [7, 8], "input_lengths": 2, "request_output_len": 100}
        answers = events(http, "tensorrt_llm", **inputs, streaming=True)
        # Triton writes a tensor of one element as a number.
        assert [token for one in answers for token in np.atleast_1d(one["output_ids"])] == list(range(5, 105))
        assert len(answers) > 5
        assert [answer["finish_reason"] for answer in answers] == [0] * (len(answers) - 1) + [3]

    @pytest.mark.parametrize(
        ("inputs", "error"),
        [
            ({"max_tokens": 0}, MalformedRequest(reason="max_tokens is 0, but must be at least 1")),
            (
                {"temperature": -1.0},
                MalformedRequest(reason="temperature is -1, but must be at least 0 and finite"),
            ),
            ({"beam_width": 4}, TensorNotSupported(tensor="beam_width")),
            ({"exclude_input_in_output": False}, TensorNotSupported(tensor="exclude_input_in_output")),
            ({"guided_decoding_guide": "{}"}, TensorNotSupported(tensor="guided_decoding_guide")),
            ({"bad_words": ["9"]}, ParameterNotHonoured(engine="mock", parameter="bad_words", value=[[14]])),
        ],
    )
    def test_a_refusal_has_a_code(self, http, answered, inputs, error):
        inputs = {"text_input": "x", "max_tokens": 5, **inputs}
        answer = http.post("models/ensemble/generate", json=inputs)
        assert answer.status_code == 400
        answered(answer.json()["error"], error)
        # The status of a stream has been sent when its first event comes.
        with http.stream("POST", "models/ensemble/generate_stream", json=inputs) as streamed:
            assert str(error) in streamed.read().decode().replace('\\"', '"')

    def test_64_streams_lose_nothing(self, server):
        tokens = 3 * RATE
        inputs = [{"text_input": "x", "max_tokens": tokens, "stream": True}] * STREAMS
        streams = run_generate_streams(server.http_port, "ensemble", inputs)
        assert [stream.text for stream in streams] == [counted(tokens)] * STREAMS
        assert all(stream.complete for stream in streams)
        server.engine.wait_in_flight(0)

    def test_a_client_that_leaves_stops_the_engines_work(self, http, server):
        inputs = {"text_input": "x", "max_tokens": 1_000_000, "stream": True}
        with http.stream("POST", "models/ensemble/generate_stream", json=inputs) as answer:
            lines = answer.iter_lines()  # which closes the answer when it is let go of
            next(lines)
            server.engine.wait_in_flight(1)
        server.engine.wait_in_flight(0)


def test_without_tokenizer_files_text_is_refused(tmp_path):
    http_port = free_port()
    engine = write_engine(tmp_path / "engine")
    path = f"{PROJECT_ROOT}:{STAND_IN}"
    with triton(tmp_path, engine, http_port=http_port, engine_kind="tensorrt_llm", engine_path=path):
        url = f"http://127.0.0.1:{http_port}/v2/models"
        inputs = {"input_ids": [10, 20], "input_lengths": 2, "request_output_len": 6}
        answer = httpx2.post(f"{url}/tensorrt_llm/generate", json=inputs).json()
        assert answer["output_ids"] == stand_in_tokens([10, 20], 6)
        refused = httpx2.post(f"{url}/ensemble/generate", json={"text_input": "x", "max_tokens": 5})
        assert refused.json()["error"].startswith("E2102 TritonTokenizerError: ")
