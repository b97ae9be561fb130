"""Stands in for tritonserver, to give the runner answers that the real one should never give.

It answers a request whose prompt holds one of the token ids below with the tokens 5 and 6, and then what is said
there; any other with the token 5.
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
import stat
import struct
import sys
from array import array
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from runner.protocol.engine import Declaration, FinishReason, Limits, Output
from runner.protocol.feed import EngineState, FeedFrame
from runner.protocol.frames import PROTOCOL_VERSION
from runner.protocol.framing import FrameReader, framed
from runner.protocol.outputs import ERROR_FINISH, encode_outputs
from shared.layout import PROJECT_ROOT, Layout
from tests.support.feed_request import decode_request

NO_CODE = "something that nobody gave a code"
NO_CODE_TOKEN, NO_FRAME_TOKEN, NO_TOKEN_TOKEN, NO_FEED_TOKEN = 100, 101, 102, 103


def step(number: int, tokens: list[int], finish: FinishReason = FinishReason.NOT_FINISHED) -> bytes:
    return framed(FeedFrame.STEP, encode_outputs([Output(number, tokens, finish)]))


def refusal(number: int, text: str) -> bytes:
    """As what Triton itself refuses ends."""
    data = text.encode()
    return framed(FeedFrame.STEP, struct.pack("<IQBBI", 1, number, ERROR_FINISH, 0, len(data)) + data)


async def serve_feed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    engine = struct.pack("<BI", EngineState.READY, 0)
    engine += Declaration("mock", Limits(4096, 4095, None), frozenset()).to_json().encode()
    writer.write(framed(FeedFrame.OPENED, struct.pack("<I", PROTOCOL_VERSION)))
    writer.write(framed(FeedFrame.ENGINE, engine))
    frames = FrameReader()
    while data := await reader.read(1 << 16):
        for kind, body in frames.frames(data):
            if kind == FeedFrame.REQUEST:
                await answer(writer, *decode_request(body))
    writer.close()


async def answer(feed: asyncio.StreamWriter, number: int, tensors: dict[str, bytes]) -> None:
    asked = set(array("i", tensors["input_ids"]))
    asked &= {NO_CODE_TOKEN, NO_FRAME_TOKEN, NO_TOKEN_TOKEN, NO_FEED_TOKEN}
    if not asked:
        feed.write(step(number, [5], FinishReason.LENGTH))
        return
    feed.write(step(number, [5, 6]))
    await asyncio.sleep(0.2)  # what comes in one piece is read in one piece
    if NO_CODE_TOKEN in asked:
        feed.write(refusal(number, NO_CODE))
    elif NO_FRAME_TOKEN in asked:
        feed.write(framed(FeedFrame.STEP, b"\xff\xff"))
    elif NO_TOKEN_TOKEN in asked:
        feed.write(step(number, [-1]))
    else:
        feed.close()


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model-repository", type=Path)
    parser.add_argument("--metrics-address")
    options = parser.parse_known_args()[0]
    config = (options.model_repository / "tensorrt_llm/config.pbtxt").read_text()
    parameters = text_format.Parse(config, model_config_pb2.ModelConfig()).parameters
    # Nobody says anything there.
    metrics = options.metrics_address.removeprefix("unix:")
    await asyncio.start_unix_server(lambda _, writer: writer.close(), metrics)
    server = await asyncio.start_unix_server(serve_feed, parameters["feed_path"].string_value)
    await server.serve_forever()


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
