"""Stands in for tritonserver, to give the runner answers that the real one should never give.

It answers a request whose prompt holds one of the token ids below with the tokens 5 and 6, and then what is said
there; any other with the token 5.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import shlex
import stat
import struct
import sys
from array import array
from pathlib import Path

import grpc
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc

from runner.protocol.engine import Declaration, FinishReason, Limits, Output
from runner.protocol.feed import EngineState, FeedFrame
from runner.protocol.frames import PROTOCOL_VERSION
from runner.protocol.outputs import encode_outputs
from shared.layout import PROJECT_ROOT, Layout

NO_CODE = "something that nobody gave a code"
NO_CODE_TOKEN, NO_FRAME_TOKEN, NO_TOKEN_TOKEN, NO_STREAM_TOKEN = 100, 101, 102, 103


def framed(kind: int, body: bytes) -> bytes:
    return struct.pack("<IB", 1 + len(body), kind) + body


def step(number: int, tokens: list[int], finish: FinishReason = FinishReason.NOT_FINISHED) -> bytes:
    return framed(FeedFrame.STEP, encode_outputs([Output(number, tokens, finish)]))


class Triton(service_pb2_grpc.GRPCInferenceServiceServicer):
    def __init__(self) -> None:
        self.feeds: dict[int, asyncio.StreamWriter] = {}
        self.numbers = itertools.count(1)

    async def open_feed(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = next(self.numbers)
        self.feeds[number] = writer
        engine = struct.pack("<BI", EngineState.READY, 0)
        engine += Declaration("mock", Limits(4096, 4095, None), frozenset()).to_json().encode()
        writer.write(framed(FeedFrame.OPENED, struct.pack("<IQ", PROTOCOL_VERSION, number)))
        writer.write(framed(FeedFrame.ENGINE, engine))
        await reader.read()
        writer.close()

    async def ModelStreamInfer(self, requests, context):  # noqa: N802 - gRPC's name
        async for request in requests:
            number = request.parameters["feed_request"].int64_param
            feed = self.feeds[request.parameters["feed"].int64_param]
            names = (tensor.name for tensor in request.inputs)
            tokens = dict(zip(names, request.raw_input_contents, strict=True))["input_ids"]
            asked = set(array("i", tokens)) & {NO_CODE_TOKEN, NO_FRAME_TOKEN, NO_TOKEN_TOKEN, NO_STREAM_TOKEN}
            if not asked:
                feed.write(step(number, [5], FinishReason.LENGTH))
                continue
            feed.write(step(number, [5, 6]))
            await asyncio.sleep(0.2)  # the two ways are not one
            if NO_CODE_TOKEN in asked:
                message = service_pb2.ModelStreamInferResponse(error_message=NO_CODE)
                message.infer_response.id = request.id
                yield message
            elif NO_FRAME_TOKEN in asked:
                feed.write(framed(FeedFrame.STEP, b"\xff\xff"))
            elif NO_TOKEN_TOKEN in asked:
                feed.write(step(number, [-1]))
            else:
                await context.abort(grpc.StatusCode.INTERNAL, NO_CODE)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model-repository", type=Path)
    parser.add_argument("--grpc-port")
    options = parser.parse_known_args()[0]
    config = (options.model_repository / "tensorrt_llm/config.pbtxt").read_text()
    parameters = text_format.Parse(config, model_config_pb2.ModelConfig()).parameters
    triton, server = Triton(), grpc.aio.server()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(triton, server)
    server.add_insecure_port(f"127.0.0.1:{options.grpc_port}")
    await server.start()
    await asyncio.start_unix_server(triton.open_feed, parameters["feed_path"].string_value)
    await server.wait_for_termination()


def home_with_it(directory: Path) -> Path:
    """A COG_TRITON_HOME whose tritonserver is this one."""
    home = directory / "home"
    program = home / "triton/pytriton/tritonserver/bin/tritonserver"
    program.parent.mkdir(parents=True)
    (home / "triton/nvidia_pytriton.libs").mkdir()
    (home / "bridge").symlink_to(Layout.current().home / "bridge")
    # Through the shell: the first line of a program cannot name an interpreter whose path has a space.
    start = f"import sys; sys.path.insert(0, {str(PROJECT_ROOT)!r});"
    start += " import asyncio; from tests.support.triton_stand_in import main; asyncio.run(main())"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(start)} "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return home
