"""The whole runner with the real vLLM: OpenAI's API in front, and what becomes of it when processes die."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING

import httpx2
import pytest

from builder.pipeline import build
from demo.cog_client import PredictionClient
from runner.engines.vllm.compile_cache import made_for
from runner.text.tokenizer import Tokenizer
from shared.cog.server import free_port
from shared.layout import PROJECT_ROOT, Layout
from tests.integration.conftest import cog_server
from tests.support.processes import marked
from tests.support.tensorrt_llm_engine import NVML
from tests.support.under_load import cancel_half, kill
from tests.support.waiting import wait_for
from tests.vllm.conftest import ENVIRONMENT, PYTHON, START_SECONDS, engine_core
from tests.vllm.model import ARGUMENTS, GREEDY_TOKENS, MAX_SEQ_LEN, MODEL, PROMPTS

if TYPE_CHECKING:
    from pathlib import Path

OPERATOR = "the-key-of-the-operator"
STREAM = {"prompt": [5, 6, 7], "temperature": 0, "ignore_eos": True, "stream": True}
STREAM |= {"stream_options": {"include_usage": True}}


def built(scratch: Path) -> Path:
    """The archive of the demo's model, by the builder."""
    config = {"engine": "vllm", "model": str(MODEL), "max_model_len": MAX_SEQ_LEN, "engine_args": ARGUMENTS}
    (scratch / "config.yaml").write_text(json.dumps(config))
    build(str(scratch / "config.yaml"), scratch / "engine.tar")
    return scratch / "engine.tar"


@pytest.fixture(scope="module")
def triton_port():
    """Where Triton's own HTTP endpoints are."""
    return free_port()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """COMPILE_CACHE."""
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(scope="module")
def server(triton_port, adapters, compiled, tmp_path_factory):
    """A runner as an image has it, but for GPUs: vLLM's environment is that of the tests."""
    scratch = tmp_path_factory.mktemp("stack")
    home = scratch / "home"
    (home / "engines").mkdir(parents=True)
    (home / "engines/vllm").symlink_to(PYTHON.parent.parent)
    for part in ("triton", "bridge"):
        (home / part).symlink_to(Layout.current().home / part)
    settings = {
        "COG_WEIGHTS": str(built(scratch)),
        "TRITON_HTTP_ADDRESS": f"127.0.0.1:{triton_port}",
        "WEIGHTS_CACHE": str(scratch / "weights"),
        "COMPILE_CACHE": str(compiled),
        "COG_TRITON_HOME": str(home),
        "PYTHONPATH": os.pathsep.join((str(NVML), str(PROJECT_ROOT))),
        "LORA_FOLDER": str(adapters),
        "OPERATOR_KEY": OPERATOR,
        **ENVIRONMENT,
    }
    with cog_server("runner", scratch / "log", ready_seconds=START_SECONDS, **settings) as running:
        yield running


@pytest.fixture
def complete(server):
    """The answer to a completion."""

    def ask(**parameters):
        body = {"prompt": [5, 6, 7], "temperature": 0, "max_tokens": 20, **parameters}
        answer = httpx2.post(f"{server.url}/v1/completions", json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.json()

    return ask


def port_of(server) -> int:
    return int(server.url.rpartition(":")[2])


def process(server, part: str) -> int:
    """The process whose command line holds this."""
    return next(pid for pid, command in marked(server.mark).items() if part in command)


def test_greedy_texts_are_those_of_vllms_own_tokens(server, engine_directory, greedy_reference):
    tokenizer = Tokenizer.load(engine_directory / "tokenizer")
    body = {"prompt": PROMPTS, "temperature": 0, "max_tokens": GREEDY_TOKENS, "ignore_eos": True}
    answer = httpx2.post(f"{server.url}/v1/completions", json=body, timeout=120).json()
    assert [choice["text"] for choice in answer["choices"]] == [
        tokenizer.decode(tokens) for tokens in greedy_reference
    ]
    assert {choice["finish_reason"] for choice in answer["choices"]} == {"length"}
    assert answer["usage"]["completion_tokens"] == len(PROMPTS) * GREEDY_TOKENS


@pytest.mark.usefixtures("server")
def test_what_it_compiles_is_kept_for_this_engine(compiled):
    (folder,) = compiled.iterdir()
    assert made_for(folder)["arguments"]["tensor_parallel_size"] == 1
    assert (folder / "vllm").is_dir()


def test_an_end_id_of_the_model_ends_the_text(complete, engine_directory):
    (end, *_) = Tokenizer.load(engine_directory / "tokenizer").end_ids
    assert complete(logit_bias={str(end): 100})["choices"][0]["finish_reason"] == "stop"
    assert complete(logit_bias={str(end): 100})["choices"][0]["text"] == ""


def test_a_stop_sequence_ends_the_text_before_it(complete):
    text = complete(ignore_eos=True)["choices"][0]["text"]
    stop = text[len(text) // 2 :][:3]
    choice = complete(ignore_eos=True, stop=[stop])["choices"][0]
    assert choice["text"] == text[: text.index(stop)]
    assert choice["finish_reason"] == "stop"


def test_log_probabilities_are_told(complete):
    told = complete(max_tokens=5, ignore_eos=True, logprobs=2)["choices"][0]["logprobs"]
    assert len(told["tokens"]) == len(told["token_logprobs"]) == 5
    assert all(value <= 0 for value in told["token_logprobs"])


def test_what_is_sampled_without_top_p_differs(complete):
    texts = {complete(temperature=1, max_tokens=40)["choices"][0]["text"] for _ in range(4)}
    assert len(texts) > 1


def test_a_client_of_tritons_own_backend_gets_the_same_text(complete, server, triton_port):
    parameters: dict[str, object] = {
        "stream": False,
        "temperature": 0,
        "exclude_input_in_output": True,
        "ignore_eos": True,
    }
    parameters |= {"max_tokens": 20}
    body = {"text_input": "Once upon", "parameters": parameters}
    model = f"http://127.0.0.1:{triton_port}/v2/models/vllm_model"
    answer = httpx2.post(f"{model}/generate", json=body, timeout=60).json()
    expected = complete(prompt="Once upon", ignore_eos=True)["choices"][0]["text"]
    assert answer["text_output"] == expected
    body["parameters"] = parameters | {"stream": True, "top_p": 0.9, "temperature": 0.5, "stop": "zzz"}
    with httpx2.stream("POST", f"{model}/generate_stream", json=body, timeout=60) as events:
        texts = [json.loads(line[6:])["text_output"] for line in events.iter_lines() if line]
    assert len(texts) > 2
    chosen = {**parameters, "ignore_eos": False, "structured_outputs": json.dumps({"choice": ["one", "two"]})}
    body["parameters"] = chosen
    assert httpx2.post(f"{model}/generate", json=body, timeout=60).json()["text_output"] in ("one", "two")


def test_a_client_of_tritons_own_backend_names_an_adapter(complete, triton_port):
    asked = {"text_input": "Once upon", "return_cumulative_logprob": True}
    parameters = {"stream": False, "temperature": 0, "exclude_input_in_output": True, "max_tokens": 20}

    def told(**more):
        body = asked | {"parameters": parameters | more}
        url = f"http://127.0.0.1:{triton_port}/v2/models/vllm_model/generate"
        return httpx2.post(url, json=body, timeout=60).json()

    first = told(lora_name="first")
    assert first["text_output"] == complete(prompt="Once upon", model="first")["choices"][0]["text"]
    assert abs(first["cumulative_logprob"] - told()["cumulative_logprob"]) > 0.01
    assert "E1106" in told(lora_name="none")["error"]


def test_a_text_is_held_to_a_schema_that_either_api_sends(complete, server):
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"enum": [1, 2, 3]}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    choice = complete(response_format=wanted, max_tokens=100)["choices"][0]
    assert choice["finish_reason"] == "stop"
    inputs = {"prompt": "Once", "structured_output": json.dumps({"json": schema}), "max_tokens": 100}
    for text in (choice["text"], "".join(PredictionClient(server.url).predict(inputs)["output"])):
        told = json.loads(text)
        assert set(told) == {"name", "age"}
        assert told["age"] in (1, 2, 3)


def test_a_schema_that_cannot_be_followed_is_refused_before_anything_is_sent(server):
    for stream in (False, True):
        body = {
            "prompt": [5],
            "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": 1}}},
        }
        answer = httpx2.post(f"{server.url}/v1/completions", json=body | {"stream": stream})
        assert answer.status_code == 400
        assert (answer.json()["error"]["code"], answer.json()["error"]["param"]) == (
            "E1105",
            "response_format",
        )


def test_an_adapter_is_a_model_that_the_operator_loads(complete, server, lora_references, engine_directory):
    tokenizer = Tokenizer.load(engine_directory / "tokenizer")
    greedy = {"prompt": PROMPTS[0], "max_tokens": GREEDY_TOKENS, "ignore_eos": True}
    expected = {name: tokenizer.decode(texts[0]) for name, texts in lora_references.items()}
    assert complete(model="first", **greedy)["choices"][0]["text"] == expected["first"]
    body = {"lora_name": "second", "lora_path": "team/second"}
    url, key = f"{server.url}/v1/load_lora_adapter", {"authorization": f"Bearer {OPERATOR}"}
    assert httpx2.post(url, json=body).status_code == 401
    assert httpx2.post(url, json=body, headers=key, timeout=60).status_code == 200
    assert complete(model="second", **greedy)["choices"][0]["text"] == expected["team/second"]


def test_no_seed_is_chosen_for_it(server):
    metrics = PredictionClient(server.url).predict({"prompt": "Once upon", "max_tokens": 3})["metrics"]
    assert "seed" not in metrics


def test_leaving_half_of_the_streams_frees_their_blocks(server):
    told = asyncio.run(cancel_half(port_of(server), {**STREAM, "max_tokens": 200}, 16))
    assert told["rest_whole"] == 8
    assert told["active_and_blocks_at_the_end"] == (0, 0)
    assert told["seconds"] < 5  # one, on a machine with time for it


@pytest.mark.parametrize(
    ("part", "codes"),
    [
        ("runner.engines.process", {"E2400"}),
        ("engine core", {"E2400"}),
        ("bin/tritonserver", {"E2105"}),
    ],
)
def test_what_is_killed_under_load_is_told_and_started_again(server, part, codes):
    if part == "engine core":  # which has overwritten its environment with its name
        victim = engine_core(process(server, "runner.engines.process"))
    else:
        victim = process(server, part)
    told = asyncio.run(kill(port_of(server), victim, {**STREAM, "max_tokens": 250}, 8))
    assert set(told["told"]) <= codes | {"whole"}
    assert sum(told["told"].values()) == 8
    assert told["seconds_until_all_were_told"] < 20
    wait_for(lambda: httpx2.get(f"{server.url}/health/ready").status_code == 200, START_SECONDS)
