"""What is refused, and what fails."""

import asyncio
import json

import pytest

from runner.front.openai import elsewhere as elsewhere_module
from runner.front.openai.asks import as_sent
from runner.front.openai.errors import openai_error
from runner.front.openai.parameters import ChatParameters, CompletionParameters
from shared.errors import (
    ApiKeyInvalid,
    EngineProcessDied,
    ExecutorQueueFull,
    InvalidArgument,
    LimitTooLow,
    MethodNotAllowed,
    ModelNotServed,
    ParameterNotHonoured,
    ParameterNotSupported,
    ParameterUnknown,
    PathServedElsewhere,
    PathUnknown,
    PromptTooLong,
    RequestInvalid,
    VllmAdaptersInUse,
    from_text,
)
from tests.support.waiting import until
from tests.unit.front.openai.conftest import HI, MODEL, error_of, events


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_refused_is_told_in_openais_form(run, stream):
    async def test(front, http):
        sent = {"messages": HI, "temprature": 1, "stream": stream}
        error = await error_of(await http.post("/v1/chat/completions", json=sent), 400)
        assert error == {
            "message": "E1301 ParameterUnknown: There is no parameter temprature. Write temperature, or omit it.",
            "type": "invalid_request_error",
            "param": "temprature",
            "code": "E1301",
        }
        error = await error_of(await http.post("/v1/completions", json={"prompt": "", "stream": stream}), 400)
        assert (error["code"], error["param"]) == ("E1001", "prompt")

    run(test)


def test_a_prompt_that_is_too_long():
    """LangChain knows it by OpenAI's own name for it, LiteLLM by words of the message: for them it was any
    bad request, so nothing shortened the prompt or asked another model.
    """
    error = openai_error(PromptTooLong(prompt_tokens=6000, max_prompt_tokens=4095), 400)["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "prompt")
    told = "E1002 PromptTooLong: The prompt has 6000 tokens; the maximum input length is 4095."
    assert error["message"].startswith(told)


def test_another_model_is_not_there(run):
    async def test(front, http):
        sent = {"prompt": "1", "model": "gpt-4o"}
        error = await error_of(await http.post("/v1/completions", json=sent), 404)
        assert (error["code"], error["param"]) == ("model_not_found", "model")
        assert error["message"].startswith('E1303 ModelNotServed: The model "gpt-4o" does not exist here')
        assert (await http.get("/v1/models/gpt-4o")).status_code == 404

    run(test)


CHAT = "Use /v1/chat/completions"
LITELLM = "Anthropic's API into it, such as LiteLLM"
NO_VECTORS = "A runner only generates text: use a server for embedding or ranking models"
BASE = "Give your client a base URL that ends in /v1, once"


def elsewhere(path, instead):
    return PathServedElsewhere(path=path, instead=instead)


@pytest.mark.parametrize(
    ("method", "path", "status", "allow", "wanted"),
    [
        ("GET", "/v1", 404, None, PathUnknown(path="/v1")),
        ("POST", "/v1/nothing", 404, None, PathUnknown(path="/v1/nothing")),
        (
            "POST",
            "/v1/messages",
            404,
            None,
            elsewhere("/v1/messages", f"{CHAT}, or a proxy that translates {LITELLM}"),
        ),
        (
            "POST",
            "/v1/messages/count_tokens",
            404,
            None,
            elsewhere("/v1/messages/count_tokens", "Use /tokenize with the same messages"),
        ),
        (
            "POST",
            "/v1/responses",
            404,
            None,
            elsewhere("/v1/responses", f"{CHAT}: most clients have an option for it"),
        ),
        (
            "GET",
            "/v1/responses/resp_1",
            404,
            None,
            elsewhere("/v1/responses/resp_1", f"{CHAT}: most clients have an option for it"),
        ),
        ("POST", "/v1/embeddings", 404, None, elsewhere("/v1/embeddings", NO_VECTORS)),
        ("POST", "/rerank", 404, None, elsewhere("/rerank", NO_VECTORS)),
        ("POST", "/chat/completions", 404, None, elsewhere("/chat/completions", BASE)),
        ("POST", "/v1/v1/chat/completions", 404, None, elsewhere("/v1/v1/chat/completions", BASE)),
        (
            "POST",
            "/v1/predictions",
            404,
            None,
            elsewhere("/v1/predictions", "Use /predictions: Cog's API has no /v1"),
        ),
        ("POST", "/api/chat", 404, None, elsewhere("/api/chat", f"{CHAT}: this is not Ollama")),
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
            MethodNotAllowed(path="/v1/models/model", method="DELETE", allowed="GET or HEAD"),
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


def test_a_full_runner_says_so(run):
    async def test(front, http):
        hangs = asyncio.create_task(http.post("/v1/completions", json={"prompt": [9]}))
        await until(lambda: front.client.in_flight == 1)
        answer = await http.post("/v1/completions", json={"prompt": "1"})
        assert (await error_of(answer, 429))["code"] == "E2106"
        hangs.cancel()

    run(test, MAX_PREDICTIONS="1")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ExecutorQueueFull(limit=1), 429),
        (EngineProcessDied(reason="killed"), 503),
        (VllmAdaptersInUse(reason="as many as fit (2) are in use by other requests"), 503),
    ],
)
def test_what_may_go_well_soon_is_to_be_tried_again(run, error, status):
    async def test(front, http):
        asking = asyncio.create_task(http.post("/v1/completions", json={"prompt": [9]}))
        await until(lambda: front.client.in_flight)
        front.client.die(error)
        answer = await asking
        assert (await error_of(answer, status))["code"] == error.code
        assert int(answer.headers["retry-after"]) > 0

    run(test)


def test_before_there_is_an_engine(engine_directory, run):
    async def test(front, http):
        for call in (http.get("/v1/models"), http.post("/v1/completions", json={"prompt": "1"})):
            answer = await call
            error = await error_of(answer, 503)
            assert (error["type"], error["code"]) == ("server_error", "E2401")
            assert int(answer.headers["retry-after"]) > 0
        assert (await http.get("/health")).status_code == 503

    run(test, loaded=False)


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (ParameterNotHonoured(engine="mock", parameter="log_probs", value=3), "logprobs"),
        (InvalidArgument(argument="stop_sequences", value="9 characters long", reason="x"), "stop"),
        (InvalidArgument(argument="seed", value=-1, reason="x"), "seed"),
    ],
)
def test_parameters_have_openais_names(error, name):
    told = openai_error(from_text(str(error)), 400)["error"]
    assert (told["param"], told["code"]) == (name, error.code)
    assert f"{name} is " in told["message"] or f"{name}=3. Omit {name}," in told["message"]
    assert "log_probs" not in told["message"]


@pytest.mark.parametrize(
    ("sent", "name"),
    [
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"structured_outputs": {"regex": "a"}}, "structured_outputs"),
        ({"response_format": {"type": "text"}, "guided_regex": "a"}, "guided_regex"),
        ({"guided_choice": []}, "guided_choice"),
        ({"guided_regex": ""}, "guided_regex"),
        ({"response_format": {"type": "json_object"}, "structured_outputs": {}}, "response_format"),
    ],
)
def test_a_structure_that_is_refused_has_the_name_that_was_sent(sent, name):
    parameters = CompletionParameters.model_validate({"prompt": "1", **sent})
    error = ParameterNotHonoured(engine="mock", parameter="structured_output", value="regex")
    told = openai_error(error, 400, as_sent(parameters))["error"]
    assert told["param"] == name
    assert f"Omit {name}, " in told["message"]


@pytest.mark.parametrize(
    ("sent", "error", "told"),
    [
        (
            {"logprobs": True},
            ParameterNotHonoured(engine="mock", parameter="log_probs", value=0),
            "logprobs=true. Omit logprobs,",
        ),
        (
            {"logprobs": True, "top_logprobs": 10},
            ParameterNotHonoured(engine="mock", parameter="log_probs", value=10),
            "top_logprobs=10. Omit top_logprobs,",
        ),
        (
            {"logprobs": True, "top_logprobs": 10},
            InvalidArgument(argument="log_probs", value=10, reason="at most 5 are returned"),
            "top_logprobs is 10, but",
        ),
        (
            {"max_completion_tokens": 7},
            InvalidArgument(argument="max_tokens", value=7, reason="the most is 5"),
            "max_completion_tokens is 7, but",
        ),
        (
            {"max_tokens": 7},
            InvalidArgument(argument="max_tokens", value=7, reason="the most is 5"),
            " max_tokens is 7, but",
        ),
    ],
)
def test_parameters_of_chats_have_the_names_and_values_that_were_sent(sent, error, told):
    parameters = ChatParameters.model_validate({"messages": HI, **sent})
    assert told in openai_error(error, 400, as_sent(parameters))["error"]["message"]


def test_a_structure_that_is_invalid_has_the_name_that_was_sent(run):
    async def test(front, http):
        sent = {"prompt": "1", "structured_outputs": {"regex": 5}}
        error = await error_of(await http.post("/v1/completions", json=sent), 400)
        assert (error["code"], error["param"]) == ("E1105", "structured_outputs")

    run(test)


def _too_many(count):
    what = "tokens for prompts and answers"
    return LimitTooLow(count=count, what=what, who="your key", limit=100, setting="KEY_MAX_TOKENS")


def test_a_body_that_is_too_large(run):
    async def test(front, http):
        answer = await http.post("/v1/completions", json={"prompt": "1" * 2000})
        assert (await error_of(answer, 413))["code"] == "E1320"

    run(test, MAX_BODY_BYTES="1000")


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        ({}, RequestInvalid(parameter="prompt", reason="prompt is missing")),
        ({"prompt": "1", "zzz": 1}, ParameterUnknown(parameter="zzz", instead="Omit it")),
        (
            {"prompt": "1", "echo": True},
            ParameterNotSupported(parameter="echo", reason="the prompt is not repeated"),
        ),
        ({"prompt": "1", "model": "x"}, ModelNotServed(model="x", served=MODEL)),
        ({"prompt": "1", "max_tokens": 100}, _too_many(101)),
        ({"prompt": "1", "max_tokens": 50, "n": 2}, _too_many(102)),
        ({"prompt": ["1", "2"], "max_tokens": 50}, _too_many(102)),
        ({"prompt": ["1", "2"], "max_tokens": 25, "n": 2}, _too_many(104)),
    ],
)
def test_the_whole_texts_of_errors(run, answered, sent, error):
    async def test(front, http):
        answer = await http.post("/v1/completions", json=sent)
        answered(
            answer.json()["error"]["message"],
            ApiKeyInvalid(reason="No API key was sent", wanted="one of the keys of this runner"),
        )
        answer = await http.post("/v1/completions", json=sent, headers={"Authorization": "Bearer sk-1"})
        answered(answer.json()["error"]["message"], error)

    run(test, API_KEYS="sk-1", KEY_MAX_TOKENS="100")


def test_no_advice_stands_in_the_way_of_what_is_served(run):
    """Each advice is given, none to what is a route, and what nobody knows outside `/v1` stays a bare 404."""

    async def test(_, http):
        for path in elsewhere_module._INSTEAD:
            answer = await http.get(path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "E1350")
        for path in ("/generated", "/api", "/v3", "/modelsx"):
            answer = await http.get(path)
            assert (answer.status_code, answer.content) == (404, b"")

    run(test)
