"""Triton's gRPC, with tritonclient's messages: one stream for each request."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import grpc

from cli.perf.answers import code_in
from cli.perf.request import CUT, NOT_CONNECTED, REFUSED
from runner.triton.messages import messages

if TYPE_CHECKING:
    from cli.perf.request import Request
    from cli.perf.targets import Ask

_FINAL = "triton_final_response"


class GrpcTarget:
    """A model with the tensors `text_input`, `max_tokens` and `stream`, such as `ensemble`."""

    def __init__(self, address: str, model: str, ask: Ask) -> None:
        self.name, self.ask, self._model = "Triton's gRPC", ask, model
        self._messages = messages("service_pb2")
        self._channel = grpc.aio.insecure_channel(address, options=[("grpc.max_receive_message_length", -1)])
        self._stub = messages("service_pb2_grpc").GRPCInferenceServiceStub(self._channel)
        self._under_way: dict[Request, Any] = {}

    async def send(self, request: Request, prompt: str) -> None:
        """One request, and its responses."""
        call = self._stub.ModelStreamInfer()
        self._under_way[request] = call
        try:
            await call.write(self._infer_request(prompt))
            await call.done_writing()
            async for answer in call:
                self._take(request, answer)
        except grpc.aio.AioRpcError as error:
            unreached = error.code() is grpc.StatusCode.UNAVAILABLE and not request.events
            code = code_in(error.details() or "") or (NOT_CONNECTED if unreached else error.code().name)
            request.fail(code, error.details() or "")
        except grpc.aio.UsageError as error:  # it ended while it was being written
            request.fail(NOT_CONNECTED, str(error))
        except asyncio.CancelledError:
            if request.failure is None:  # nobody abandoned it
                raise
        finally:
            request.ended = time.perf_counter()
            del self._under_way[request]
        if not request.complete:
            request.fail(CUT, "the stream ended before the last response")

    def _take(self, request: Request, answer: Any) -> None:
        now = time.perf_counter()
        if answer.error_message:
            request.complete = True
            request.fail(code_in(answer.error_message) or REFUSED, answer.error_message)
            return
        response = answer.infer_response
        for output, raw in zip(response.outputs, response.raw_output_contents, strict=False):
            if output.name == "text_output" and len(raw) > 4:  # a length of 4 bytes is before each text
                request.events.append(now)
                request.pieces.append(raw[4:].decode(errors="replace"))
        if response.parameters[_FINAL].bool_param:
            request.complete = True

    def _infer_request(self, prompt: str) -> Any:
        tensors: list[tuple[str, str, bytes]] = [
            ("text_input", "BYTES", _text(prompt)),
            ("max_tokens", "INT32", self.ask.output_tokens.to_bytes(4, "little")),
            ("stream", "BOOL", bytes([self.ask.stream])),
        ]
        if self.ask.exact:
            tensors.append(("min_tokens", "INT32", self.ask.output_tokens.to_bytes(4, "little")))
        made = self._messages.ModelInferRequest(model_name=self._model)
        made.parameters["triton_enable_empty_final_response"].bool_param = True
        for name, datatype, raw in tensors:
            made.inputs.add(name=name, datatype=datatype, shape=[1, 1])
            made.raw_input_contents.append(raw)
        return made

    def give_up(self, request: Request) -> None:
        """Cancel its call."""
        request.fail("given up")
        if call := self._under_way.get(request):
            call.cancel()

    async def close(self) -> None:
        """End the channel."""
        await self._channel.close()


def _text(text: str) -> bytes:
    raw = text.encode()
    return len(raw).to_bytes(4, "little") + raw
