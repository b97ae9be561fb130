"""What is asked, and what is answered."""

import asyncio
import json
import re
from collections import Counter

import pytest

from runner.text.renderer import ChatRenderer
from runner.text.stop import _Automaton
from runner.text.tokenizer import Tokenizer
from tests.support.front import words
from tests.support.waiting import until
from tests.unit.front.openai.conftest import HI, MODEL, error_of, events


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
        assert [chunk["usage"] for chunk in chunks] == [None] * 3 + [usage]
        assert chunks[-1]["choices"] == []
        [choices] = zip(*(chunk["choices"] for chunk in chunks[:-1]), strict=True)
        assert [choice["delta"] for choice in choices] == [
            {"role": "assistant", "content": "95"},
            {"content": " 96"},
            {"content": " 97"},
        ]
        assert [choice["finish_reason"] for choice in choices] == [None, None, "length"]

    run(test)


def test_usage_in_each_event(run):
    """guidellm always asks for it, and could not measure a runner at all."""

    async def test(front, http):
        options = {"include_usage": True, "continuous_usage_stats": True}
        sent = {"prompt": ["1", "1 2"], "max_tokens": 2, "stream": True, "stream_options": options}
        *chunks, _ = events((await http.post("/v1/completions", json=sent)).text)
        *chunks, last = [json.loads(chunk) for chunk in chunks]
        assert last["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
        told = {0: [], 1: []}
        for chunk in chunks:
            told[chunk["choices"][0]["index"]].append(tuple(chunk["usage"].values()))
        assert told == {0: [(1, 1, 2), (1, 2, 3)], 1: [(2, 1, 3), (2, 2, 4)]}
        del options["include_usage"]
        assert "usage" not in (await http.post("/v1/completions", json=sent)).text

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
            [{"index": 0, "text": " 96", "logprobs": None, "finish_reason": "length"}],
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


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_many_texts_of_a_prompt_are_prepared_once(run, path, monkeypatch):
    """The event loop made each prompt and each automaton once for each text: one request stopped everybody's streams."""
    made = []

    def counted(kind, name):
        real = getattr(kind, name)

        def count(*arguments, **options):
            made.append(name)
            return real(*arguments, **options)

        monkeypatch.setattr(kind, name, count)

    counted(Tokenizer, "encode")
    counted(ChatRenderer, "render")
    counted(_Automaton, "__init__")

    async def test(front, http):
        prompt = {"messages": HI} if "chat" in path else {"prompt": ["10 20 30", "1"]}
        sent = prompt | {"n": 32, "seed": 5, "stop": [path, "98", ""], "max_tokens": 9}
        made.clear()
        body = (await http.post(path, json=sent)).json()
        texts = [choice.get("text") or choice["message"]["content"] for choice in body["choices"]]
        assert texts == ["95 96 97 "] * (32 if "chat" in path else 64)
        seeds = sorted(request.sampling.seed for request in front.client.requests[-len(texts) :])
        assert seeds == sorted([*range(5, 37)] * (len(texts) // 32))
        expected = {"encode": 1, "render": 1} if "chat" in path else {"encode": 2}
        assert Counter(made) == {**expected, "__init__": 1}

    run(test)


@pytest.mark.parametrize(
    "sent", [{"prompt": "3", "n": 32}, {"messages": [], "n": 32}, {"prompt": "", "n": 32}]
)
def test_an_error_of_many_texts_is_answered_once_and_leaves_nothing(run, sent):
    async def test(front, http):
        path = "/v1/chat/completions" if "messages" in sent else "/v1/completions"
        answer = await http.post(path, json=sent)
        assert answer.status_code in (400, 500)
        await until(lambda: front.client.in_flight + front.front.admission.count == 0)

    run(test)


def test_the_first_event_of_an_empty_answer_has_the_role_too(run):
    """OpenAI's client had a message without a role and content, and could not send it back."""

    async def test(_, http):
        sent = {"messages": HI, "stop": "95", "stream": True}
        *chunks, _ = events((await http.post("/v1/chat/completions", json=sent)).text)
        [[choice]] = [json.loads(chunk)["choices"] for chunk in chunks]
        assert choice["delta"] == {"role": "assistant", "content": ""}
        assert choice["finish_reason"] == "stop"
        sent = {"prompt": "1", "stop": "95", "stream": True}
        *chunks, _ = events((await http.post("/v1/completions", json=sent)).text)
        [[choice]] = [json.loads(chunk)["choices"] for chunk in chunks]
        assert choice == {"index": 0, "text": "", "logprobs": None, "finish_reason": "stop"}

    run(test)


def test_no_stop_sequence_ends_a_text_before_min_tokens(run):
    """As in `vllm serve`."""

    async def test(front, http):
        sent = {"prompt": "1", "stop": ["97", "99"], "min_tokens": 4, "max_tokens": 99}
        body = (await http.post("/v1/completions", json=sent)).json()
        assert body["choices"][0]["text"] == "95 96 97 98 "
        assert body["choices"][0]["finish_reason"] == "stop"

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
        both = await error_of(await http.post("/tokenize", json={"prompt": "x", "messages": HI}), 400)
        assert "prompt and messages were both sent" in both["message"]
        error = await error_of(await http.post("/tokenize", json={}), 400)
        assert error["param"] == "prompt"
        many = await error_of(await http.post("/detokenize", json={"tokens": [1] * ((1 << 20) + 1)}), 400)
        assert (many["code"], many["param"]) == ("E1300", "tokens")
        assert "tokens may have at most 1048576" in many["message"]

    run(test)


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
