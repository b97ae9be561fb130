"""Clients of OpenAI's API as people have them, none of them ours: the `openai` package and aiperf."""

from __future__ import annotations

import asyncio
import json

import openai
import pytest

from tests.integration.conftest import cog_server, counted, unpacked
from tests.support.aiperf import profile
from tests.support.waiting import wait_for

KEY, OTHER_KEY = "sk-first", "sk-second"
MAX_REQUESTS = 70
HI = [{"role": "user", "content": "1 2 3"}]
TEMPLATE = "{% for message in messages %}{{ message.content }} {% endfor %}"


@pytest.fixture(scope="module")
def engine(mock_archive, tmp_path_factory):
    """A mock whose tokenizer has a chat template, and can be loaded by transformers."""
    engine = unpacked(mock_archive(tokens_per_second=200), tmp_path_factory.mktemp("openai"))
    (engine / "tokenizer/chat_template.jinja").write_text(TEMPLATE)
    config = engine / "tokenizer/tokenizer_config.json"
    known = json.loads(config.read_text())
    config.write_text(json.dumps(known | {"tokenizer_class": "PreTrainedTokenizerFast"}))
    return engine


@pytest.fixture(scope="module")
def server(engine, tmp_path_factory):
    directory = tmp_path_factory.mktemp("openai-runner")
    environment = {
        "COG_WEIGHTS": str(engine),
        "API_KEYS": f"first {KEY},{OTHER_KEY}",
        "KEY_MAX_REQUESTS": str(MAX_REQUESTS),
        "SERVED_MODEL_NAME": "org/counter",
    }
    with cog_server("runner", directory / "log", **environment) as server:
        yield server


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


def chat(client, **parameters):
    return client.chat.completions.create(model="org/counter", messages=HI, **parameters)


def complete(client, **parameters):
    return client.completions.create(model="org/counter", prompt="1", **parameters)


def test_models(client):
    assert [model.id for model in client.models.list()] == ["org/counter"]
    assert client.models.retrieve("org/counter").object == "model"


def test_a_chat(client):
    answer = chat(client, max_completion_tokens=5, temperature=0, seed=1)
    [choice] = answer.choices
    assert (choice.message.role, choice.message.content) == ("assistant", counted(5))
    assert choice.finish_reason == "length"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 5)
    assert answer.model == "org/counter"


def test_a_conversation_goes_on_with_the_answer_as_it_came(client):
    answer = chat(client, max_tokens=5).choices[0].message
    more = client.chat.completions.create(
        model="org/counter", messages=[*HI, answer, {"role": "user", "content": "4"}], max_tokens=1
    )
    assert more.usage.prompt_tokens == 3 + 5 + 1


def test_a_streamed_chat(client):
    with chat(client, max_tokens=20, stream=True, stream_options={"include_usage": True}) as stream:
        *chunks, last = stream
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == counted(20)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices[0].finish_reason == "length"
    assert last.usage.completion_tokens == 20


def test_the_streaming_helper(client):
    with client.chat.completions.stream(model="org/counter", messages=HI, stop="3") as stream:
        texts = [event.delta for event in stream if event.type == "content.delta"]
        assert "".join(texts) == "0 1 2 "
        assert stream.get_final_completion().choices[0].message.content == "0 1 2 "


def test_completions_of_texts_and_of_token_ids(client):
    for prompt in (["1", "2 3"], [[6], [7, 8]]):
        answer = client.completions.create(model="org/counter", prompt=prompt, max_tokens=3, n=2)
        assert [choice.text for choice in answer.choices] == [counted(3)] * 4
        assert answer.usage.prompt_tokens == 3
    stream = client.completions.create(model="org/counter", prompt="1", max_tokens=3, stop="2", stream=True)
    chunks = list(stream)
    assert "".join(chunk.choices[0].text for chunk in chunks) == "0 1 "
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_parameters_that_only_other_servers_have(client):
    extra = {"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1, "ignore_eos": True, "min_tokens": 2}
    assert chat(client, max_tokens=2, extra_body=extra).choices[0].message.content == counted(2)


def test_log_probabilities(client):
    answer = chat(client, max_tokens=2, logprobs=True, top_logprobs=2)
    told = answer.choices[0].logprobs.content
    assert [one.token for one in told] == [" 0", " 1"]
    assert [[(other.token, other.logprob) for other in one.top_logprobs] for one in told] == [
        [(" 0", -0.5), (" 1", -1.0)],
        [(" 1", -0.5), (" 2", -1.0)],
    ]
    stream = client.completions.create(model="org/counter", prompt="1", max_tokens=3, logprobs=1, stream=True)
    told = [chunk.choices[0].logprobs for chunk in stream]
    assert [token for one in told for token in one.tokens] == [" 0", " 1", " 2"]
    assert [value for one in told for value in one.token_logprobs] == [-0.5] * 3
    assert [offset for one in told for offset in one.text_offset] == [0, 1, 3]  # in "0 1 2"


def test_a_request_is_found_again(client):
    answer = chat(client, max_tokens=1, extra_headers={"X-Request-Id": "mine"})
    assert answer._request_id == "mine"


@pytest.mark.parametrize(
    ("parameters", "kind", "code", "parameter"),
    [
        ({"model": "gpt-4o"}, openai.NotFoundError, "model_not_found", "model"),
        (
            {"messages": [{"role": "user", "content": "1 " * 4096}]},
            openai.BadRequestError,
            "context_length_exceeded",
            "prompt",
        ),
        ({"temperature": 3}, openai.BadRequestError, "E1300", "temperature"),
        ({"extra_body": {"temprature": 1}}, openai.BadRequestError, "E1301", "temprature"),
        (
            {"tools": [{"type": "function", "function": {"name": "f"}}]},
            openai.BadRequestError,
            "E1302",
            "tools",
        ),
        ({"logit_bias": {"5": 1}}, openai.BadRequestError, "E1103", "logit_bias"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors(client, parameters, kind, code, parameter, stream):
    with pytest.raises(kind) as raised:
        client.chat.completions.create(
            **{"model": "org/counter", "messages": HI, "stream": stream, **parameters}
        )
    assert (raised.value.code, raised.value.param) == (code, parameter)
    assert raised.value.request_id


def test_an_error_in_the_middle_of_a_stream(client):
    stream = client.completions.create(model="org/counter", prompt="<error>", max_tokens=10, stream=True)
    texts = []

    def read():
        for chunk in stream:
            texts.append(chunk.choices[0].text)  # noqa: PERF401 - it ends with an error

    with pytest.raises(openai.APIError, match="E2405") as raised:
        read()
    assert "".join(texts) == counted(5)
    assert raised.value.code == "E2405"


def test_a_wrong_key(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="sk-wrong", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError) as raised:
            client.models.list()
        assert raised.value.code == "invalid_api_key"


def test_many_streams_at_once_and_those_that_are_given_up(server):
    async def stream(client, number):
        chunks = await client.completions.create(model="org/counter", prompt="1", max_tokens=100, stream=True)
        texts = []
        async for chunk in chunks:
            texts.append(chunk.choices[0].text)
            if number % 8 == 0:
                await chunks.close()
                return None
        return "".join(texts)

    async def go():
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
            return await asyncio.gather(*(stream(client, number) for number in range(64)))

    texts = asyncio.run(go())
    assert [text for text in texts if text is not None] == [counted(100)] * 56


def test_a_key_may_have_so_much_at_once_and_another_is_not_kept_out(server, client):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=OTHER_KEY, max_retries=0) as other:
        with complete(client, n=MAX_REQUESTS, max_tokens=100_000, stream=True) as stream:
            begun = set()
            while len(begun) < MAX_REQUESTS:
                begun.add(next(stream).choices[0].index)
            with pytest.raises(openai.RateLimitError) as raised:
                complete(client, max_tokens=1)
            assert raised.value.code == "E1305"
            assert raised.value.response.headers["retry-after"]
            assert complete(other, max_tokens=1).choices[0].text == counted(1)
        # Those that were given up make room.
        wait_for(lambda: _is_let_in(client))


def _is_let_in(client):
    try:
        complete(client, max_tokens=1)
    except openai.RateLimitError:
        return False
    return True


@pytest.mark.timeout(900)  # the environment may have to be made
def test_aiperf(server, engine, tmp_path):
    """Answers in one piece; test_perf.py has it measure streams."""
    requests, tokens = 16, 12
    arguments = {
        "--model": "org/counter",
        "--url": server.url,
        "--endpoint-type": "chat",
        "--api-key": KEY,
        "--request-count": requests,
        "--concurrency": 8,
        "--tokenizer": engine / "tokenizer",
        "--synthetic-input-tokens-mean": 10,
        "--output-tokens-mean": tokens,
        "--ui": "none",
        "--artifact-dir": tmp_path / "found",
    }
    profile([part for pair in arguments.items() for part in pair], tmp_path)
    found = json.loads((tmp_path / "found/profile_export_aiperf.json").read_text())
    assert found["request_count"]["avg"] == requests
    assert found["output_sequence_length"]["avg"] == tokens
    assert "error_request_count" not in found
