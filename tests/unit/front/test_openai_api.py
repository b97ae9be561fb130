"""OpenAI's API over HTTP, on a fake engine: token i is the word for 95 + i % 50."""

import asyncio
import json
import re

import httpx2
import pytest

from runner.front.server import tls_files
from runner.settings import Settings
from shared.errors import (
    ApiKeyInvalid,
    KeyLimitReached,
    MethodNotAllowed,
    ModelNotServed,
    ParameterNotSupported,
    ParameterUnknown,
    PathUnknown,
    RequestInvalid,
    SettingInvalid,
)
from tests.support.files import CERTIFICATE
from tests.support.front import serving, words

HI = [{"role": "user", "content": "10 20 30"}]
MODEL = "model"  # an engine without a manifest has no name


async def until(condition):
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError


def events(text):
    """The contents of an event stream."""
    lines = text.split("\n\n")
    assert lines.pop() == ""
    assert all(line.startswith("data: ") for line in lines)
    return [line.removeprefix("data: ") for line in lines]


@pytest.fixture
def run(engine_directory):
    """Run an asynchronous test against a front with these settings."""

    def run(test, **environment):
        async def go():
            async with (
                serving(engine_directory, **environment) as front,
                httpx2.AsyncClient(base_url=front.url) as http,
            ):
                await test(front, http)

        asyncio.run(asyncio.wait_for(go(), 30))

    return run


def test_a_completion(run):
    async def test(front, http):
        answer = await http.post("/v1/completions", json={"prompt": "10 20 30", "model": MODEL})
        assert answer.status_code == 200
        body = answer.json()
        assert body.pop("id").startswith("cmpl-")
        assert body.pop("created") > 1_700_000_000
        assert body == {
            "object": "text_completion",
            "model": MODEL,
            "choices": [{"index": 0, "text": words(16), "logprobs": None, "finish_reason": "length"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 16, "total_tokens": 19},
        }
        assert front.client.requests[-1].input_token_ids == [15, 25, 35]

    run(test)


def test_a_chat_completion(run):
    async def test(front, http):
        sent = {"messages": HI, "max_completion_tokens": 3}
        body = (await http.post("/v1/chat/completions", json=sent)).json()
        assert body["id"].startswith("chatcmpl-")
        assert body["object"] == "chat.completion"
        message = {"role": "assistant", "content": words(3), "refusal": None}
        assert body["choices"] == [
            {"index": 0, "message": message, "logprobs": None, "finish_reason": "length"}
        ]

    run(test)


def test_a_streamed_chat_completion(run):
    async def test(front, http):
        sent = {"messages": HI, "max_tokens": 3, "stream": True, "stream_options": {"include_usage": True}}
        answer = await http.post("/v1/chat/completions", json=sent)
        assert answer.headers["content-type"].startswith("text/event-stream")
        *chunks, done = events(answer.text)
        assert done == "[DONE]"
        chunks = [json.loads(chunk) for chunk in chunks]
        assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
        assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
        usage = {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7}
        assert [chunk["usage"] for chunk in chunks] == [None] * 4 + [usage]
        assert chunks[-1]["choices"] == []
        [choices] = zip(*(chunk["choices"] for chunk in chunks[:-1]), strict=True)
        assert [choice["delta"] for choice in choices] == [
            {"role": "assistant", "content": "95"},
            {"content": " 96"},
            {"content": " 97"},
            {},
        ]
        assert [choice["finish_reason"] for choice in choices] == [None, None, None, "length"]

    run(test)


def test_a_streamed_completion(run):
    async def test(front, http):
        sent = {"prompt": "1", "max_tokens": 2, "stream": True}
        *chunks, done = events((await http.post("/v1/completions", json=sent)).text)
        assert done == "[DONE]"
        chunks = [json.loads(chunk) for chunk in chunks]
        assert not any("usage" in chunk for chunk in chunks)
        assert [chunk["choices"] for chunk in chunks] == [
            [{"index": 0, "text": "95", "logprobs": None, "finish_reason": None}],
            [{"index": 0, "text": " 96", "logprobs": None, "finish_reason": None}],
            [{"index": 0, "text": "", "logprobs": None, "finish_reason": "length"}],
        ]

    run(test)


def test_several_texts_of_several_prompts(run):
    async def test(front, http):
        sent = {"prompt": [[6], [6, 7]], "n": 2, "max_tokens": 2}
        body = (await http.post("/v1/completions", json=sent)).json()
        assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
        assert {choice["text"] for choice in body["choices"]} == {words(2)}
        assert body["usage"] == {"prompt_tokens": 3, "completion_tokens": 8, "total_tokens": 11}
        answer = await http.post("/v1/completions", json=sent | {"stream": True})
        texts = ["", "", "", ""]
        for chunk in events(answer.text)[:-1]:
            [choice] = json.loads(chunk)["choices"]
            texts[choice["index"]] += choice["text"]
        assert texts == [words(2)] * 4

    run(test)


def test_a_text_ends_before_a_stop_sequence(run):
    async def test(front, http):
        sent = {"prompt": "1", "stop": ["x", "98"], "max_tokens": 99}
        body = (await http.post("/v1/completions", json=sent)).json()
        assert body["choices"][0]["text"] == "95 96 97 "
        assert body["choices"][0]["finish_reason"] == "stop"
        assert front.client.in_flight == 0

    run(test)


def test_the_chat_template_is_told_its_arguments(run):
    async def test(front, http):
        sent = {"messages": HI, "chat_template_kwargs": {"more": 40}, "max_tokens": 1}
        await http.post("/v1/chat/completions", json=sent)
        assert front.client.requests[-1].input_token_ids == [0, 15, 25, 35, 45]

    run(test)


async def error_of(answer, status):
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error"}
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_refused_is_told_in_openais_form(run, stream):
    async def test(front, http):
        sent = {"messages": HI, "temprature": 1, "stream": stream}
        error = await error_of(await http.post("/v1/chat/completions", json=sent), 400)
        assert error == {
            "message": "E1301 ParameterUnknown: There is no parameter temprature. Did you mean temperature.",
            "type": "invalid_request_error",
            "param": "temprature",
            "code": "E1301",
        }
        error = await error_of(await http.post("/v1/completions", json={"prompt": "", "stream": stream}), 400)
        assert (error["code"], error["param"]) == ("E1001", "prompt")

    run(test)


def test_another_model_is_not_there(run):
    async def test(front, http):
        sent = {"prompt": "1", "model": "gpt-4o"}
        error = await error_of(await http.post("/v1/completions", json=sent), 404)
        assert (error["code"], error["param"]) == ("model_not_found", "model")
        assert error["message"].startswith('E1303 ModelNotServed: The model "gpt-4o" does not exist here')
        assert (await http.get("/v1/models/gpt-4o")).status_code == 404

    run(test)


def test_another_model_is_taken_where_a_setting_says_so(run):
    async def test(front, http):
        sent = {"prompt": "1", "model": "gpt-4o"}
        answer = await http.post("/v1/completions", json=sent)
        assert answer.json()["model"] == "org/llama"

    run(test, ACCEPT_ANY_MODEL="true", SERVED_MODEL_NAME="org/llama")


def test_the_model_is_listed_under_its_name(run):
    async def test(front, http):
        [model] = (await http.get("/v1/models")).json()["data"]
        assert (model["id"], model["object"]) == ("org/llama", "model")
        for path in ("org/llama", "org%2Fllama"):
            assert (await http.get(f"/v1/models/{path}")).json() == model

    run(test, SERVED_MODEL_NAME="org/llama")


@pytest.mark.parametrize(
    ("method", "path", "status", "allow", "wanted"),
    [
        ("GET", "/v1", 404, None, PathUnknown(path="/v1")),
        ("POST", "/v1/embeddings", 404, None, PathUnknown(path="/v1/embeddings")),
        ("GET", "/v1/models/a/b/c", 404, None, PathUnknown(path="/v1/models/a/b/c")),
        ("GET", f"/v1/{'x' * 5000}", 404, None, PathUnknown(path=f"/v1/{'x' * 196}")),
        (
            "GET",
            "/v1/chat/completions",
            405,
            "POST",
            MethodNotAllowed(path="/v1/chat/completions", method="GET", allowed="POST"),
        ),
        (
            "DELETE",
            "/v1/models/model",
            405,
            "GET,HEAD",
            MethodNotAllowed(path="/v1/models/model", method="DELETE", allowed="GET, HEAD"),
        ),
    ],
)
def test_what_is_not_there_is_told_in_openais_form(run, answered, method, path, status, allow, wanted):
    async def test(front, http):
        answer = await http.request(method, path)
        error = await error_of(answer, status)
        answered(error["message"], wanted)
        assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", None, wanted.code)
        assert answer.headers.get("allow") == allow

    run(test, API_KEYS="sk-1")


def test_a_key_is_needed_where_keys_are_set(run):
    async def test(front, http):
        sent = {"prompt": "1"}
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            answer = await http.post("/v1/completions", json=sent, headers=headers)
            error = await error_of(answer, 401)
            assert error["code"] == "invalid_api_key"
            assert error["message"].startswith("E1304 ApiKeyInvalid: ")
        for path in ("/v1/models", "/v1/models/model"):
            assert (await http.get(path)).status_code == 401
        assert (await http.post("/tokenize", json=sent)).status_code == 401
        right = {"Authorization": "Bearer sk-1"}
        assert (await http.post("/v1/completions", json=sent, headers=right)).status_code == 200
        assert (await http.get("/version")).status_code == 200

    run(test, API_KEYS="sk-1")


def test_an_engine_that_fails_in_the_middle_ends_the_stream_with_an_error(run):
    async def test(front, http):
        sent = {"prompt": [8], "max_tokens": 4}
        error = await error_of(await http.post("/v1/completions", json=sent), 500)
        assert (error["type"], error["code"]) == ("server_error", "E2405")
        *chunks, last = events((await http.post("/v1/completions", json=sent | {"stream": True})).text)
        assert [json.loads(chunk)["choices"][0]["text"] for chunk in chunks] == ["95", " 96"]
        assert json.loads(last)["error"] == error

    run(test)


def test_one_text_that_fails_ends_the_others(run):
    async def test(front, http):
        sent = {"prompt": [[9], [8], [9]], "max_tokens": 4, "stream": True}
        last = events((await http.post("/v1/completions", json=sent)).text)[-1]
        assert json.loads(last)["error"]["code"] == "E2405"
        assert front.client.in_flight == 0
        assert front.front.admission.count == 0

    run(test)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_frees_the_engine(run, stream):
    async def test(front, http):
        sent = {"prompt": "1", "max_tokens": 10**6, "stream": stream, "n": 2}

        async def ask():
            async with http.stream("POST", "/v1/completions", json=sent) as answer:
                async for _ in answer.aiter_bytes():
                    pass

        asking = asyncio.create_task(ask())
        await until(lambda: front.client.in_flight == 2)
        asking.cancel()
        await until(lambda: front.client.in_flight + front.front.admission.count == 0)

    run(test)


def test_tokens_of_a_prompt_and_of_messages_and_back(run):
    async def test(front, http):
        answer = await http.post("/tokenize", json={"prompt": "10 20"})
        assert answer.json()["tokens"] == [15, 25]
        assert answer.json()["count"] == 2
        answer = await http.post("/tokenize", json={"messages": HI})
        assert answer.json()["tokens"] == [0, 15, 25, 35]
        answer = await http.post("/detokenize", json={"tokens": [15, 25]})
        assert answer.json() == {"prompt": "10 20"}
        error = await error_of(await http.post("/tokenize", json={}), 400)
        assert error["param"] == "prompt"

    run(test)


def test_cogs_api_and_the_metrics_need_a_key_where_settings_say_so(run):
    right = {"Authorization": "Bearer sk-1"}
    asked = {"input": {"prompt": "1", "max_tokens": 1}}

    async def open_to_all(front, http):
        assert (await http.post("/predictions", json=asked)).status_code == 200
        assert (await http.get("/metrics")).status_code == 200

    async def with_keys(front, http):
        answer = await http.post("/predictions", json=asked)
        assert answer.status_code == 401
        assert answer.json()["detail"].startswith("E1304 ApiKeyInvalid: No API key was sent.")
        for path in ("/predictions/x", "/metrics"):
            assert (await http.get(path)).status_code == 401
        for path in ("/health-check", "/health", "/health/live", "/version", "/openapi.json"):
            assert (await http.get(path)).status_code == 200
        assert (await http.post("/predictions", json=asked, headers=right)).status_code == 200
        assert (await http.get("/metrics", headers=right)).status_code == 200

    run(open_to_all, API_KEYS="sk-1")
    run(with_keys, API_KEYS="sk-1", COG_API_NEEDS_KEY="true", METRICS_NEED_KEY="true")


def test_a_key_that_has_all_it_may_is_told_to_try_again(run):
    async def test(front, http):
        http.headers["Authorization"] = "Bearer sk-1"
        hangs = asyncio.create_task(http.post("/v1/completions", json={"prompt": [9]}))
        await until(lambda: front.client.in_flight == 1)
        answer = await http.post("/v1/completions", json={"prompt": "1", "stream": True})
        error = await error_of(answer, 429)
        assert (error["type"], error["code"]) == ("rate_limit_error", "E1305")
        assert int(answer.headers["retry-after"]) > 0
        http.headers["Authorization"] = "Bearer sk-2"
        assert (await http.post("/v1/completions", json={"prompt": "1"})).status_code == 200
        answer = await http.post("/v1/completions", json={"prompt": "1", "max_tokens": 100})
        assert "tokens at work for your key would be 101" in (await error_of(answer, 429))["message"]
        hangs.cancel()

    run(test, API_KEYS="sk-1,sk-2", KEY_MAX_REQUESTS="1", KEY_MAX_TOKENS="100")


def test_a_full_runner_says_so(run):
    async def test(front, http):
        hangs = asyncio.create_task(http.post("/v1/completions", json={"prompt": [9]}))
        await until(lambda: front.client.in_flight == 1)
        answer = await http.post("/v1/completions", json={"prompt": "1"})
        assert (await error_of(answer, 429))["code"] == "E2106"
        hangs.cancel()

    run(test, MAX_PREDICTIONS="1")


def test_before_there_is_an_engine(engine_directory, run):
    async def test(front, http):
        for call in (http.get("/v1/models"), http.post("/v1/completions", json={"prompt": "1"})):
            answer = await call
            error = await error_of(answer, 503)
            assert (error["type"], error["code"]) == ("server_error", "E2401")
            assert int(answer.headers["retry-after"]) > 0
        assert (await http.get("/health")).status_code == 503

    run(test, loaded=False)


def test_a_request_can_be_found_again(run):
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

    async def test(front, http):
        sent = {"X-Request-Id": "r-1", "traceparent": parent, "tracestate": "a=b"}
        for answer in (
            await http.post("/v1/completions", json={"prompt": "1"}, headers=sent),
            await http.post("/v1/completions", json={"prompt": "1", "stream": True}, headers=sent),
            await http.post("/v1/completions", json={}, headers=sent),
            await http.post("/predictions", json={}, headers=sent),
            await http.get("/nowhere", headers=sent),
        ):
            assert {name: answer.headers[name] for name in sent} == sent
        assert len((await http.get("/health")).headers["x-request-id"]) == 32

    run(test)


def test_log_lines_say_which_request_they_are_of(run, capsys, caplog):
    async def test(front, http):
        headers = {"X-Request-Id": "r-1", "Authorization": "Bearer sk-1"}
        await http.post("/v1/completions", json={"prompt": [8]}, headers=headers)

    run(test, API_KEYS="alice sk-1")
    # They are printed until something configures logging, as other tests in this process may have done.
    lines = [*capsys.readouterr().out.splitlines(), *(str(record.msg) for record in caplog.records)]
    [line] = [line for line in lines if "prediction failed" in line]
    assert re.search(r"request_id\W+r-1\b", line)
    assert re.search(r"key\W+alice\b", line)
    assert "sk-1" not in line
    assert re.search(r"prediction_id\W+cmpl-", line)


def test_a_body_that_is_too_large(run):
    async def test(front, http):
        answer = await http.post("/v1/completions", json={"prompt": "1" * 2000})
        assert (await error_of(answer, 413))["code"] == "E1320"

    run(test, MAX_BODY_BYTES="1000")


def test_https(run, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))

    async def test(front, http):
        assert front.url.startswith("https://")
        assert (await http.get("/v1/models")).status_code == 200

    run(test, TLS_CERTIFICATE=str(CERTIFICATE), TLS_KEY=str(CERTIFICATE))


@pytest.mark.parametrize(
    "files",
    [
        {"TLS_CERTIFICATE": str(CERTIFICATE)},
        {"TLS_KEY": str(CERTIFICATE)},
        {"TLS_CERTIFICATE": "nowhere.pem", "TLS_KEY": str(CERTIFICATE)},
        {"TLS_CERTIFICATE": str(CERTIFICATE), "TLS_KEY": __file__},
    ],
)
def test_certificates_that_cannot_be_used(files):
    with pytest.raises(SettingInvalid, match="TLS_"):
        tls_files(Settings.from_environment(files))


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        ({}, RequestInvalid(parameter="prompt", reason="prompt is missing")),
        ({"prompt": "1", "zzz": 1}, ParameterUnknown(parameter="zzz", instead="Leave it away")),
        (
            {"prompt": "1", "echo": True},
            ParameterNotSupported(parameter="echo", reason="the prompt is not repeated"),
        ),
        ({"prompt": "1", "model": "x"}, ModelNotServed(model="x", served=MODEL)),
        ({"prompt": "1", "max_tokens": 100}, KeyLimitReached(what="tokens", count=101, limit=100)),
    ],
)
def test_the_whole_texts_of_errors(run, answered, sent, error):
    async def test(front, http):
        answer = await http.post("/v1/completions", json=sent)
        answered(answer.json()["error"]["message"], ApiKeyInvalid(reason="No API key was sent"))
        answer = await http.post("/v1/completions", json=sent, headers={"Authorization": "Bearer sk-1"})
        answered(answer.json()["error"]["message"], error)

    run(test, API_KEYS="sk-1", KEY_MAX_TOKENS="100")
