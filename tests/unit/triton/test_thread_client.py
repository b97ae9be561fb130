"""What the client makes of Triton's answers; the server is grpcio's, the answers are the test's."""

from __future__ import annotations

from array import array

import grpc
import pytest
from tritonclient.grpc import service_pb2

from runner.protocol.engine import FinishReason, Request
from runner.protocol.status import StatusPage
from runner.triton.thread_client import TritonClient
from shared.errors import (
    EngineProcessDied,
    TritonMalformedEvent,
    TritonTimeout,
    TritonUnavailable,
    TritonUnknownError,
)

REQUEST = Request(request_id=7, input_token_ids=[1, 2, 3], max_tokens=5)


def response(tokens: list[int], finish: FinishReason = FinishReason.NOT_FINISHED) -> bytes:
    message = service_pb2.ModelStreamInferResponse()
    answer = message.infer_response
    for name, raw in (
        ("output_ids", array("i", tokens).tobytes()),
        ("finish_reason", finish.to_bytes(4, "little")),
    ):
        answer.outputs.add(name=name, datatype="INT32", shape=[1, 1, len(raw) // 4])
        answer.raw_output_contents.append(raw)
    return message.SerializeToString()


def failure(text: str) -> bytes:
    return service_pb2.ModelStreamInferResponse(error_message=text).SerializeToString()


@pytest.fixture
def generate(serve, tmp_path):
    """`generate(answer)`: the stream of a request that a server answers so."""
    started = []

    def start(answer, timeout: float = 20):
        page = StatusPage.create(tmp_path / "status")
        client = TritonClient(serve(answer), page, timeout)
        stream = client.generate(REQUEST)
        started.append((stream, client))
        return stream

    yield start
    for stream, client in started:
        stream.close()
        client.close()


def test_tokens_and_the_reason_of_the_end(generate):
    answers = [response([1]), response([2, -3]), response([], FinishReason.LENGTH)]
    stream = generate(lambda _request, _context: iter(answers))
    assert [list(tokens) for tokens in stream] == [[1], [2, -3], []]
    assert stream.finish_reason is FinishReason.LENGTH


def test_the_request_says_everything(generate):
    seen = []

    def answer(request, _context):
        seen.append(service_pb2.ModelInferRequest.FromString(request))
        yield response([], FinishReason.LENGTH)

    list(generate(answer))
    (message,) = seen
    assert (message.model_name, message.id) == ("tensorrt_llm", "7")
    raw = dict(zip((tensor.name for tensor in message.inputs), message.raw_input_contents, strict=True))
    assert array("i", raw["input_ids"]).tolist() == [1, 2, 3]
    assert message.parameters["consumer_slot"].int64_param >= 0


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (failure("E2400 EngineProcessDied: it was killed. Try again."), EngineProcessDied),
        (failure("unexpected"), TritonUnknownError),
        (b"\xff\xff", TritonMalformedEvent),
        (response([], FinishReason.LENGTH)[:-1], TritonMalformedEvent),
    ],
)
def test_an_error_comes_after_the_tokens_before_it(generate, answer, error):
    stream = generate(lambda _request, _context: iter([response([4]), answer]))
    assert list(next(stream)) == [4]
    with pytest.raises(error):
        next(stream)


def test_outputs_without_contents_do_not_keep_the_contract(generate):
    message = service_pb2.ModelStreamInferResponse()
    message.infer_response.outputs.add(name="output_ids", datatype="INT32", shape=[1, 1, 1])
    stream = generate(lambda _request, _context: iter([message.SerializeToString()]))
    with pytest.raises(TritonMalformedEvent):
        next(stream)


@pytest.mark.parametrize(
    ("code", "error"),
    [(grpc.StatusCode.UNAVAILABLE, TritonUnavailable), (grpc.StatusCode.INTERNAL, TritonUnknownError)],
)
def test_a_call_that_fails(generate, code, error):
    def answer(_request, context):
        context.abort(code, "no")

    with pytest.raises(error):
        next(generate(answer))


def test_a_silent_triton(generate):
    def answer(_request, context):
        while context.is_active():
            yield from ()

    with pytest.raises(TritonTimeout):
        next(generate(answer, timeout=0.3))


def test_cancel_just_ends_the_iteration(generate):
    def answer(_request, context):
        yield response([1])
        while context.is_active():
            yield from ()

    stream = generate(answer)
    assert list(next(stream)) == [1]
    stream.cancel()
    assert list(stream) == []


def test_a_cancel_that_comes_too_late_leaves_the_next_stream_alone(serve, tmp_path):
    page = StatusPage.create(tmp_path / "status")
    client = TritonClient(serve(lambda *_: iter([response([1], FinishReason.LENGTH)])), page, 20)
    first = client.generate(REQUEST)
    assert [list(tokens) for tokens in first] == [[1]]
    first.close()
    second = client.generate(REQUEST)
    first.cancel()
    assert [list(tokens) for tokens in second] == [[1]]
    assert (tmp_path / "status").read_bytes().count(b"\xff") == 0
    second.close()
    client.close()


def test_without_triton(tmp_path):
    client = TritonClient(1, StatusPage.create(tmp_path / "status"), 5)
    assert not client.is_ready()
    with pytest.raises(TritonUnavailable):
        client.generate(REQUEST)
