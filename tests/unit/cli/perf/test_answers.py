"""What servers answer, cut anywhere: text, counts, ends and errors."""

import json

import pytest

from cli.perf import answers
from cli.perf.answers import CogAnswer, OpenAIAnswer, ReplicateAnswer, TritonAnswer
from cli.perf.request import Request


def event(data, kind=None) -> bytes:
    head = f"event: {kind}\n" if kind else ""
    return f"{head}data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()


COMPLETED = {"status": "succeeded", "metrics": {"output_token_count": 3, "input_token_count": 7}}
COG = [
    event({"id": "x", "status": "start"}, "start"),
    event({"chunk": "0", "index": 0}, "output"),
    event({"chunk": " 1 2", "index": 1}, "output"),
    event(COMPLETED, "completed"),
]
CHAT = [
    event({"choices": [{"delta": {"role": "assistant", "content": ""}}]}),
    event({"choices": [{"delta": {"content": "0"}}]}),
    event({"choices": [{"delta": {"reasoning_content": " 1", "content": " 2"}}]}),
    event({"choices": [], "usage": {"completion_tokens": 3, "prompt_tokens": 7}}),
    event("[DONE]"),
]
COMPLETION = [event({"choices": [{"text": "0 1"}]}), event({"choices": [{"text": " 2"}]}), *CHAT[3:]]
TRITON = [event({"text_output": "0 1"}), event({"text_output": " 2"}), event({"text_output": ""})]
REPLICATE = [event("0 1", "output"), event(" 2", "output"), event("{}", "done")]
KINDS = [
    (CogAnswer, COG, 3),
    (OpenAIAnswer, CHAT, 3),
    (OpenAIAnswer, COMPLETION, 3),
    (TritonAnswer, TRITON, None),
    (ReplicateAnswer, REPLICATE, None),
]


def read(kind, data, *, status=200, step=None, is_stream=True, whole=True):
    """The request after an answer that came in pieces of `step` bytes, each a second after the one before."""
    request = Request(0, 0.0)
    answer = kind(request)
    answer.head(status, is_stream=is_stream)
    step = step or max(len(data), 1)
    pieces = [data[start : start + step] for start in range(0, len(data), step)]
    for second, piece in enumerate(pieces):
        answer.body(piece, float(second))
    answer.end(float(len(pieces)), whole=whole)
    return request


@pytest.mark.parametrize(("kind", "events", "tokens"), KINDS)
@pytest.mark.parametrize("step", [1, 2, 7, 1000])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_stream_cut_anywhere(kind, events, tokens, step, line_end):
    request = read(kind, b"".join(events).replace(b"\n", line_end.encode()), step=step)
    assert request.failure is None
    assert "".join(request.pieces) == "0 1 2"
    assert (request.tokens, len(request.events)) == (tokens, 2)
    assert request.token_count == (tokens or 2)


def test_events_have_the_time_at_which_they_were_whole():
    request = Request(0, intended=1.0)
    answer = CogAnswer(request)
    answer.head(200, is_stream=True)
    for when, part in enumerate([*COG[:2], COG[2][:9], COG[2][9:], COG[3]], start=2):
        answer.body(part, float(when))
    answer.end(7.0, whole=True)
    assert list(request.events) == [3.0, 5.0]
    assert (request.time_to_first_token, request.request_latency) == (2.0, 6.0)
    assert request.inter_token_latency == 1.0  # 2 s for the 2 tokens after the first
    assert request.pause == (3.0, 5.0)


@pytest.mark.parametrize(("kind", "events", "_"), KINDS)
def test_a_stream_that_is_cut_is_no_answer(kind, events, _):
    request = read(kind, b"".join(events[:-1]), whole=False)
    assert request.failure == "cut"


def test_answers_at_once():
    request = read(
        CogAnswer, json.dumps({**COMPLETED, "output": ["0", " 1", " 2"]}).encode(), is_stream=False
    )
    assert ("".join(request.pieces), request.tokens, request.time_to_first_token) == ("0 1 2", 3, None)
    document = {"choices": [{"message": {"content": "0 1 2"}}], "usage": {"completion_tokens": 3}}
    request = read(OpenAIAnswer, json.dumps(document).encode(), is_stream=False)
    assert (request.failure, "".join(request.pieces), request.tokens) == (None, "0 1 2", 3)
    request = read(TritonAnswer, b'{"text_output": "0 1 2"}', is_stream=False)
    assert (request.failure, "".join(request.pieces), request.tokens) == (None, "0 1 2", None)


@pytest.mark.parametrize(
    ("kind", "document", "code"),
    [
        (OpenAIAnswer, {"error": {"message": "out of memory", "code": 500}}, "500"),
        (OpenAIAnswer, {"error": "broken"}, "an error without a code"),
        (OpenAIAnswer, {}, "malformed answer"),
        (OpenAIAnswer, [1], "malformed answer"),
        (OpenAIAnswer, {"choices": {}}, "malformed answer"),
        (OpenAIAnswer, {"choices": ""}, "malformed answer"),
        (OpenAIAnswer, {"choices": []}, "malformed answer"),
        (OpenAIAnswer, {"choices": [1]}, "malformed answer"),
        (OpenAIAnswer, {"choices": [{"text": 5}]}, "malformed answer"),
        (OpenAIAnswer, {"choices": [{"text": "0"}], "usage": [1]}, "malformed answer"),
        (CogAnswer, {**COMPLETED, "output": "0", "metrics": [1]}, "malformed answer"),
        (CogAnswer, {**COMPLETED, "output": [1]}, "malformed answer"),
        (CogAnswer, {}, "an error without a code"),
        (TritonAnswer, {"text_output": 5}, "malformed answer"),
        (TritonAnswer, {"text_output": None}, "malformed answer"),
        (TritonAnswer, {}, "malformed answer"),
    ],
)
def test_an_answer_at_once_that_is_none(kind, document, code):
    """They were counted as good."""
    assert read(kind, json.dumps(document).encode(), is_stream=False).failure == code


@pytest.mark.parametrize("count", ["5", {"a": 1}, -5, 1e308, 2.5, True, 10**30])
def test_a_count_that_is_none_is_not_taken(count):
    usage = {"completion_tokens": count, "prompt_tokens": count}
    document = {"choices": [{"text": "0"}], "usage": usage}
    request = read(OpenAIAnswer, json.dumps(document).encode(), is_stream=False)
    assert (request.failure, request.tokens, request.prompt_tokens) == (None, None, None)
    metrics = {"output_token_count": count, "input_token_count": count}
    request = read(CogAnswer, event({**COMPLETED, "metrics": metrics}, "completed"))
    assert (request.failure, request.tokens, request.prompt_tokens) == (None, None, None)


@pytest.mark.parametrize("endless", [b"data: " + b"x" * 2000, b"data: \n\n" * 300])
def test_a_stream_that_never_ends_is_not_kept(monkeypatch, endless):
    monkeypatch.setattr(answers, "_MAX_STREAM", 1000)
    assert read(CogAnswer, endless, step=100, whole=False).failure == "endless"


def test_what_a_terminal_would_obey_is_not_said():
    request = read(CogAnswer, b"\x1b]0;title\x07 no", status=500, is_stream=False)
    assert request.said == " ]0;title  no"


@pytest.mark.parametrize(
    ("kind", "status", "body", "code"),
    [
        (CogAnswer, 429, '{"error": "E2106 EngineBusy: ...", "error_code": "E2106"}', "E2106"),
        (CogAnswer, 409, '{"detail": "Already running a prediction"}', "HTTP 409"),
        (CogAnswer, 500, "out of luck", "HTTP 500"),
        (CogAnswer, 500, "", "HTTP 500"),
        (OpenAIAnswer, 400, '{"error": {"message": "E1300 ...", "code": "E1300"}}', "E1300"),
        (OpenAIAnswer, 404, '{"error": {"message": "no such model", "code": "model_not_found"}}', "HTTP 404"),
        (TritonAnswer, 400, '{"error": "E2405 EngineInternalError: x"}', "E2405"),
        (TritonAnswer, 503, "[1, 2]", "HTTP 503"),
    ],
)
def test_refusals(kind, status, body, code):
    request = read(kind, body.encode(), status=status, is_stream=False)
    assert request.failure == code


@pytest.mark.parametrize(
    ("kind", "last", "code"),
    [
        (
            CogAnswer,
            event({"status": "failed", "error": "E2405 X: y", "error_code": "E2405"}, "completed"),
            "E2405",
        ),
        (CogAnswer, event({"status": "failed", "error": "Prediction failed: E2405 X"}, "completed"), "E2405"),
        (CogAnswer, event({"status": "canceled"}, "completed"), "an error without a code"),
        (CogAnswer, event({"text": "no chunk"}, "output"), "malformed event"),
        (CogAnswer, event("{", "output"), "malformed event"),
        (OpenAIAnswer, event({"error": {"message": "E2405 X", "code": "E2405"}}), "E2405"),
        (OpenAIAnswer, event({"error": "broken"}), "an error without a code"),
        (OpenAIAnswer, event({"choices": 3}), "malformed event"),
        (OpenAIAnswer, event({"choices": {}}), "malformed event"),
        (OpenAIAnswer, event({"choices": ""}), "malformed event"),
        (TritonAnswer, event({}), "malformed event"),
        (TritonAnswer, event({"error": "E2405 X"}), "E2405"),
        (TritonAnswer, event({"error": "unexpected inference input"}), "an error without a code"),
        (ReplicateAnswer, event("E2405 X", "error"), "E2405"),
        (ReplicateAnswer, event('{"reason": "canceled"}', "done"), "canceled"),
    ],
)
def test_errors_in_the_middle_of_a_stream(kind, last, code):
    before = {
        CogAnswer: COG[1],
        OpenAIAnswer: CHAT[1],
        TritonAnswer: TRITON[0],
        ReplicateAnswer: REPLICATE[0],
    }
    request = read(kind, before[kind] + last)
    assert request.failure == code
    assert len(request.events) == 1
