"""Requests to Triton, and the tokens that come back: each request on a connection of its own."""

from __future__ import annotations

import threading
from array import array
from typing import TYPE_CHECKING, Self

from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2

from runner.protocol.engine import FinishReason
from runner.protocol.tokens import request_tensors
from runner.triton.grpc_connection import GrpcConnection, GrpcError, GrpcStatus
from runner.triton.model_repository import MODEL_NAME
from shared.errors import (
    CogTritonError,
    TritonMalformedEvent,
    TritonTimeout,
    TritonUnavailable,
    TritonUnknownError,
    from_text,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.protocol.engine import Request
    from runner.protocol.status import Slot, StatusPage

_SERVICE = "/inference.GRPCInferenceService"
_READY_TIMEOUT = 2
_CANCEL_SECONDS = 1  # after which a cancelled call is ended by force
_OUTPUTS = [
    service_pb2.ModelInferRequest.InferRequestedOutputTensor(name=name)
    for name in ("output_ids", "finish_reason")
]


class TritonClient:
    """The way to one Triton on this machine. Threads may share it; each reads its own streams."""

    def __init__(self, port: int, page: StatusPage, response_timeout: float) -> None:
        """`response_timeout`: seconds without a response after which a stream fails with E2101."""
        self._port = port
        self._page = page
        self._response_timeout = response_timeout
        self.response_count = 0
        """Responses so far, to all requests."""
        self._idle: list[GrpcConnection] = []

    def is_ready(self) -> bool:
        """Whether Triton answers and has loaded the model."""
        message = service_pb2.ModelReadyRequest(name=MODEL_NAME).SerializeToString()
        try:
            connection = GrpcConnection("127.0.0.1", self._port, _READY_TIMEOUT)
        except GrpcError:
            return False
        try:
            connection.start(f"{_SERVICE}/ModelReady", message)
            answer = connection.next_message()
        except (GrpcError, TimeoutError):
            return False
        finally:
            connection.close()
        return answer is not None and bool(service_pb2.ModelReadyResponse.FromString(answer).ready)

    def generate(self, request: Request) -> TokenStream:
        """Send a request; iterate the result for its tokens. Raises E2105."""
        slot = self._page.acquire_slot()
        message = service_pb2.ModelInferRequest(
            model_name=MODEL_NAME, id=str(request.request_id), outputs=_OUTPUTS
        )
        for tensor in request_tensors(request):
            message.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
            message.raw_input_contents.append(tensor.data)
        if slot is not None:
            message.parameters["consumer_slot"].int64_param = slot.index
        try:
            connection = self._connection()
            connection.start(f"{_SERVICE}/ModelStreamInfer", message.SerializeToString())
        except GrpcError as error:
            if slot is not None:
                slot.release()
            raise TritonUnavailable(reason=error.details) from None
        return TokenStream(connection, slot, self._response_timeout, self)

    def close(self) -> None:
        """Close the connections that no stream uses."""
        while self._idle:
            self._idle.pop().close()

    def _connection(self) -> GrpcConnection:
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return GrpcConnection("127.0.0.1", self._port, self._response_timeout)
            if connection.is_usable():
                return connection
            connection.close()

    def take_back(self, connection: GrpcConnection) -> None:
        """Keep a connection for the next request, if it can be used again."""
        if connection.is_usable():
            self._idle.append(connection)
        else:
            connection.close()

    def count_response(self) -> None:
        """Count one; that two threads may count only one between them does not matter."""
        self.response_count += 1


class TokenStream:
    """The responses to one request: an iterator of token ids that came together.

    Iterating raises the coded error with which the request ended, if it did. `finish_reason` is set at the
    end. After `cancel`, from any thread, the iteration just ends.
    """

    def __init__(
        self,
        connection: GrpcConnection,
        slot: Slot | None,
        response_timeout: float,
        client: TritonClient,
    ) -> None:
        self._connection = connection
        self._slot = slot
        self._response_timeout = response_timeout
        self._client = client
        self._cancelled = False
        self._ended = False
        self._closed = False
        self._lock = threading.Lock()  # held to cancel, and to give back what another stream then gets
        self._given_back = False
        self._last_resort: threading.Timer | None = None
        self._consumed = 0
        self.finish_reason = FinishReason.NOT_FINISHED

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Sequence[int]:
        while True:
            try:
                message = self._connection.next_message()
            except TimeoutError:
                raise TritonTimeout(seconds=self._response_timeout) from None
            except GrpcError as error:
                self._ended = True
                if self._cancelled:
                    raise StopIteration from None
                raise _translated(error) from None
            if message is None:
                self._ended = True
                raise StopIteration
            # Counting up tells the bridge that this consumer keeps up; it merges responses when it does not.
            self._consumed += 1
            self._client.count_response()
            if self._slot is not None:
                self._slot.consumed(self._consumed)
                if self._cancelled:  # which the count may have overwritten
                    self._slot.cancel()
            if not self._cancelled:
                return self._tokens(message)

    def cancel(self) -> None:
        """Stop the engine's work on this request at its next step.

        The bridge is told, and ends the call. To break the call off is the last resort: Triton's gRPC server
        crashes now and then when a client does (triton-inference-server/server#7368, #8034).
        """
        with self._lock:
            if self._cancelled or self._given_back:
                return
            self._cancelled = True
            if self._slot is None:
                self._connection.abort()
                return
            self._slot.cancel()
            self._last_resort = threading.Timer(_CANCEL_SECONDS, self._break_off)
            self._last_resort.daemon = True
            self._last_resort.start()

    def close(self) -> None:
        """Give back what the stream holds; a request that has not ended is cancelled. May be called twice."""
        if self._closed:
            return
        self._closed = True
        if not self._ended:
            self.cancel()
            try:
                for _ in self:
                    pass
            except CogTritonError:
                pass  # it came too late to matter
        with self._lock:
            self._given_back = True
        if self._last_resort is not None:
            self._last_resort.cancel()
        if self._slot is not None:
            self._slot.release()
        self._client.take_back(self._connection)

    def _break_off(self) -> None:
        with self._lock:
            if not self._given_back:
                self._connection.abort()

    def _tokens(self, message: bytes) -> Sequence[int]:
        tokens = array("i")
        try:
            response = service_pb2.ModelStreamInferResponse.FromString(message)
            if response.error_message:
                raise _coded(response.error_message)
            answer = response.infer_response
            for output, raw in zip(answer.outputs, answer.raw_output_contents, strict=True):
                if output.name == "output_ids":
                    tokens.frombytes(raw)
                elif output.name == "finish_reason":
                    self.finish_reason = FinishReason(int.from_bytes(raw, "little"))
        except (DecodeError, ValueError) as malformed:
            raise TritonMalformedEvent(reason=str(malformed)) from None
        return tokens


def _coded(text: str) -> Exception:
    return from_text(text) or TritonUnknownError(reason=text)


def _translated(error: GrpcError) -> Exception:
    if error.status == GrpcStatus.UNAVAILABLE:
        return TritonUnavailable(reason=error.details)
    return _coded(error.details)
