"""Requests to Triton, and the tokens that come back: one gRPC call per request.

Triton's ModelStreamInfer takes a stream of requests. We send one and close our side, so that the call is a
unary-stream one, which gRPC can drive in the thread that reads it: no other thread wakes up for a message.
"""

from __future__ import annotations

import threading
import time
from array import array
from typing import TYPE_CHECKING, Self

import grpc
from tritonclient.grpc import service_pb2

from runner.engines.base import FinishReason
from runner.triton.contract import request_tensors
from runner.triton.model_repository import MODEL_NAME
from shared.errors import (
    TritonMalformedEvent,
    TritonTimeout,
    TritonUnavailable,
    TritonUnknownError,
    from_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from runner.bridge.status import Slot, StatusPage
    from runner.engines.base import Request
    from shared.errors import CogTritonError

_SERVICE = "/inference.GRPCInferenceService"
_CHANNEL_OPTIONS = [
    ("grpc.experimental.single_threaded_unary_stream", 1),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
]
_WATCH_SECONDS = 0.5
_OUTPUTS = [
    service_pb2.ModelInferRequest.InferRequestedOutputTensor(name=name)
    for name in ("output_ids", "finish_reason")
]


class TritonClient:
    """The way to one Triton. Threads may share it; each reads its own streams."""

    def __init__(self, address: str, page: StatusPage, response_timeout: float) -> None:
        """`response_timeout`: seconds without a response after which a stream fails with E2101."""
        self.address = address
        self._page = page
        self._response_timeout = response_timeout
        self._channel = grpc.insecure_channel(address, options=_CHANNEL_OPTIONS)
        self._model_ready = self._channel.unary_unary(
            f"{_SERVICE}/ModelReady",
            request_serializer=service_pb2.ModelReadyRequest.SerializeToString,
            response_deserializer=service_pb2.ModelReadyResponse.FromString,
        )
        self._stream_infer = self._channel.unary_stream(
            f"{_SERVICE}/ModelStreamInfer",
            request_serializer=service_pb2.ModelInferRequest.SerializeToString,
            response_deserializer=service_pb2.ModelStreamInferResponse.FromString,
        )
        self._open: set[TokenStream] = set()
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="stalled-streams", daemon=True).start()

    def is_ready(self) -> bool:
        """Whether Triton answers and has loaded the model."""
        try:
            answer = self._model_ready(service_pb2.ModelReadyRequest(name=MODEL_NAME), timeout=2)
        except grpc.RpcError:
            return False
        return bool(answer.ready)

    def generate(self, request: Request) -> TokenStream:
        """Send a request; iterate the result for its tokens. Errors come while it is iterated."""
        slot = self._page.acquire_slot()
        message = service_pb2.ModelInferRequest(
            model_name=MODEL_NAME, id=str(request.request_id), outputs=_OUTPUTS
        )
        for tensor in request_tensors(request):
            message.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
            message.raw_input_contents.append(tensor.data)
        if slot is not None:
            message.parameters["consumer_slot"].int64_param = slot.index
        stream = TokenStream(self._stream_infer(message), slot, self._open.discard)
        self._open.add(stream)
        return stream

    def close(self) -> None:
        """End the calls that are still open, and the channel."""
        self._closed.set()
        self._channel.close()

    def _watch(self) -> None:
        while not self._closed.wait(_WATCH_SECONDS):
            stalled_since = time.monotonic() - self._response_timeout
            for stream in tuple(self._open):
                if stream.last_response < stalled_since:
                    stream.fail(TritonTimeout(seconds=self._response_timeout))


class TokenStream:
    """The responses to one request: an iterator of token ids that came together.

    Iterating raises the coded error with which the request ended, if it did. `finish_reason` is set at the
    end. After `cancel`, from any thread, the iteration just ends.
    """

    def __init__(self, call: grpc.Call, slot: Slot | None, on_close: Callable[[TokenStream], object]) -> None:
        self._call = call
        self._slot = slot
        self._on_close = on_close
        self._cancelled = False
        self._failure: CogTritonError | None = None
        self._consumed = 0
        self.finish_reason = FinishReason.NOT_FINISHED
        self.last_response = time.monotonic()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Sequence[int]:
        try:
            response = next(self._call)
        except StopIteration:
            self.close()
            raise
        except grpc.RpcError as error:
            self.close()
            raise self._translated(error) from None
        self.last_response = time.monotonic()
        # Counting up tells the bridge that this consumer keeps up; it merges responses when it does not.
        self._consumed += 1
        if self._slot is not None:
            self._slot.consumed(self._consumed)
        if response.error_message:
            self.close()
            raise from_text(response.error_message) or TritonUnknownError(reason=response.error_message)
        return self._tokens(response.infer_response)

    def cancel(self) -> None:
        """Stop the engine's work on this request at its next step."""
        self._cancelled = True
        self._call.cancel()

    def fail(self, error: CogTritonError) -> None:
        """End the stream with `error`, and the engine's work on it."""
        self._failure = error
        self._call.cancel()

    def close(self) -> None:
        """Give back what the stream holds; cancels it if it has not ended. May be called twice."""
        self._call.cancel()
        slot, self._slot = self._slot, None
        if slot is not None:
            slot.release()
        self._on_close(self)

    def _translated(self, error: grpc.RpcError) -> Exception:
        if self._failure is not None:
            return self._failure
        if self._cancelled:
            return StopIteration()
        details = error.details() or error.code().name
        if coded := from_text(details):
            return coded
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            return TritonUnavailable(reason=details)
        return TritonUnknownError(reason=details)

    def _tokens(self, response: service_pb2.ModelInferResponse) -> Sequence[int]:
        tokens = array("i")
        try:
            raw = dict(
                zip((output.name for output in response.outputs), response.raw_output_contents, strict=True)
            )
            tokens.frombytes(raw.get("output_ids", b""))
            if "finish_reason" in raw:
                self.finish_reason = FinishReason(int.from_bytes(raw["finish_reason"], "little"))
        except ValueError as malformed:
            self.close()
            raise TritonMalformedEvent(reason=str(malformed)) from None
        return tokens
