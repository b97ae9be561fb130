"""Stands in for tritonserver, to give the runner answers that the real one should never give.

It answers a request whose prompt holds one of the token ids of ANSWERS with the tokens 5 and 6, and then what
is said there; any other with the token 5.
"""

from __future__ import annotations

import argparse
import mmap
import shlex
import stat
import sys
from array import array
from concurrent import futures
from pathlib import Path

import grpc
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2, service_pb2

from runner.protocol.engine import FinishReason
from runner.protocol.feed import EngineState
from runner.protocol.status import ENGINE_STATE, SIZE
from shared.layout import PROJECT_ROOT, Layout

NO_CODE = "something that nobody gave a code"


def response(tokens: list[int], finish: FinishReason) -> bytes:
    message = service_pb2.ModelStreamInferResponse()
    for name, values in (("output_ids", tokens), ("finish_reason", [finish])):
        message.infer_response.outputs.add(name=name, datatype="INT32", shape=[1, 1, len(values)])
        message.infer_response.raw_output_contents.append(array("i", values).tobytes())
    return message.SerializeToString()


ANSWERS = {
    100: service_pb2.ModelStreamInferResponse(error_message=NO_CODE).SerializeToString(),
    101: b"\xff\xff",
    102: response([-1], FinishReason.NOT_FINISHED),
    103: None,  # the call itself fails
}


def answer(request: bytes, context: grpc.ServicerContext):
    message = service_pb2.ModelInferRequest.FromString(request)
    raw = dict(zip((tensor.name for tensor in message.inputs), message.raw_input_contents, strict=True))
    asked = ANSWERS.keys() & array("i", raw["input_ids"]).tolist()
    if not asked:
        yield response([5], FinishReason.LENGTH)
        return
    yield response([5, 6], FinishReason.NOT_FINISHED)
    wrong = ANSWERS[asked.pop()]
    if wrong is None:
        context.abort(grpc.StatusCode.INTERNAL, NO_CODE)
    yield wrong


def is_ready(_request: bytes, _context: grpc.ServicerContext) -> bytes:
    return service_pb2.ModelReadyResponse(ready=True).SerializeToString()


class Handler(grpc.GenericRpcHandler):
    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        if details.method.endswith("/ModelReady"):
            return grpc.unary_unary_rpc_method_handler(is_ready)
        return grpc.unary_stream_rpc_method_handler(answer)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model-repository", type=Path)
    parser.add_argument("--grpc-port")
    options = parser.parse_known_args()[0]
    server = grpc.server(futures.ThreadPoolExecutor(8), handlers=[Handler()])
    server.add_insecure_port(f"127.0.0.1:{options.grpc_port}")
    server.start()
    config = (options.model_repository / "tensorrt_llm/config.pbtxt").read_text()
    parameters = text_format.Parse(config, model_config_pb2.ModelConfig()).parameters
    with (
        Path(parameters["status_path"].string_value).open("r+b") as page,
        mmap.mmap(page.fileno(), SIZE) as it,
    ):
        it[ENGINE_STATE : ENGINE_STATE + 4] = EngineState.READY.to_bytes(4, "little")
    server.wait_for_termination()


def home_with_it(directory: Path) -> Path:
    """A COG_TRITON_HOME whose tritonserver is this one."""
    home = directory / "home"
    program = home / "triton/pytriton/tritonserver/bin/tritonserver"
    program.parent.mkdir(parents=True)
    (home / "triton/nvidia_pytriton.libs").mkdir()
    (home / "bridge").symlink_to(Layout.current().home / "bridge")
    # Through the shell: the first line of a program cannot name an interpreter whose path has a space.
    start = f"import sys; sys.path.insert(0, {str(PROJECT_ROOT)!r});"
    start += " from tests.support.triton_stand_in import main; main()"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(start)} "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return home
