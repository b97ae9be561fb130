"""Streams of a runner with vLLM: half of them left, and processes or hosts lost under them. Standard library only.

A `body` is that of a request to /v1/completions, streamed and with its usage.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_ENGINE = "cog_triton_engine"
_CODE = re.compile(rb"E[0-9]{4}")
_COUNT = re.compile(rb'"completion_tokens": ?([0-9]+)')
_WAIT_SECONDS = 240


@dataclass
class Stream:
    """One request, and what came of it."""

    task: asyncio.Task[None] | None = None
    writer: asyncio.StreamWriter | None = None
    status: int = 0
    has_tokens: bool = False
    tokens: int = 0
    code: str | None = None
    """Of the error that it ended with, and of those that this one names."""

    async def follow(self, port: int, body: dict[str, Any]) -> None:
        reader, self.writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        content = json.dumps(body).encode()
        head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
        self.writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        try:
            self.status = int((await reader.readline()).split()[1])
            async for line in reader:
                if not line.startswith((b"data:", b"{")):
                    continue
                if b'"error"' in line:
                    self.code = b" ".join(dict.fromkeys(_CODE.findall(line))).decode() or "none"
                elif count := _COUNT.search(line):
                    self.tokens = int(count[1])
                else:
                    self.has_tokens = True
        except (OSError, IndexError):
            self.code = self.code or "cut off"
        finally:
            self.writer.close()

    @property
    def ended_early(self) -> bool:
        return self.task is not None and self.task.done()


async def _streams(port: int, body: dict[str, Any], count: int) -> list[Stream]:
    """So many streams, each of which has got tokens."""
    streams = [Stream() for _ in range(count)]
    for stream in streams:
        stream.task = asyncio.create_task(stream.follow(port, body))
    await _until(lambda: all(stream.has_tokens or stream.ended_early for stream in streams), "first tokens")
    return streams


async def _until(condition: Callable[[], bool], what: str, seconds: float = 60) -> float:
    """The seconds until it holds. Raises RuntimeError."""
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > seconds:
            raise RuntimeError(f"no {what} within {seconds} s")
        await asyncio.sleep(0.005)
    return time.monotonic() - started


async def cancel_half(port: int, body: dict[str, Any], count: int) -> dict[str, Any]:
    """Leave half of the streams; when the engine says that their blocks are free, and whether the rest is whole.

    The engine says once a second how many blocks are used: half of the streams is left half-way in between.
    """
    streams = await _streams(port, body, count)
    before = await _numbers(port)
    while (now := await _numbers(port)) == before:
        pass
    await asyncio.sleep(0.4)
    left, rest = streams[::2], streams[1::2]
    for stream in left:
        assert stream.writer is not None
        stream.writer.transport.abort()
    cancelled = time.monotonic()
    while (after := await _numbers(port))[0] > len(rest):
        if time.monotonic() - cancelled > _WAIT_SECONDS:
            raise RuntimeError("the cancelled streams are not ended")
    seconds = time.monotonic() - cancelled
    await asyncio.wait([stream.task for stream in streams if stream.task], timeout=_WAIT_SECONDS)
    whole = sum(stream.tokens == body["max_tokens"] for stream in rest)
    end = await _numbers(port)
    for _ in range(50):  # it is told once a second
        if end == (0, 0):
            break
        await asyncio.sleep(0.1)
        end = await _numbers(port)
    return {
        "streams": count,
        "seconds": round(seconds, 3),
        "active_and_blocks_before": now,
        "active_and_blocks_after": after,
        "active_and_blocks_at_the_end": end,
        "rest_whole": whole,
    }


async def _numbers(port: int) -> tuple[int, int]:
    """Active requests and used blocks, as the engine said last."""

    def read() -> tuple[int, int]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
        told = {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}
        return int(told[f"{_ENGINE}_active_requests"]), int(told[f"{_ENGINE}_kv_cache_blocks_used"])

    return await asyncio.to_thread(read)


async def kill(port: int, pid: int, body: dict[str, Any], count: int) -> dict[str, Any]:
    """Kill a process under load: what its streams are told, and when service is back."""
    return await lose(port, lambda: os.kill(pid, signal.SIGKILL), body, count)


async def lose(
    port: int,
    take: Callable[[], object],
    body: dict[str, Any],
    count: int,
    replace: Callable[[], object] = lambda: None,
) -> dict[str, Any]:
    """The same of whatever `take` takes away; once all streams have ended, `replace` brings what it needs."""
    memory = gpu_memory()
    streams = await _streams(port, body, count)
    take()
    killed = time.monotonic()
    tasks = [stream.task for stream in streams if stream.task]
    await asyncio.wait(tasks, timeout=_WAIT_SECONDS)
    told = time.monotonic() - killed
    replace()
    least = gpu_memory()
    while True:
        least = min(least, await asyncio.to_thread(gpu_memory))
        one = Stream()
        try:
            await asyncio.wait_for(one.follow(port, {**body, "max_tokens": 8}), 30)
        except (OSError, TimeoutError):
            pass
        if one.tokens == 8:
            break
        if time.monotonic() - killed > _WAIT_SECONDS:
            raise RuntimeError("there is no service again")
        await asyncio.sleep(0.2)
    again = time.monotonic() - killed
    codes = [stream.code or "whole" for stream in streams]
    return {
        "streams": count,
        "told": {code: codes.count(code) for code in sorted(set(codes))},
        "seconds_until_all_were_told": round(told, 2),
        "seconds_until_service": round(again, 1),
        "gpu_memory_mib": {"before": memory, "least_meanwhile": least, "after": gpu_memory()},
    }


def gpu_memory() -> int:
    """MiB in use on all GPUs together; 0 if there are none."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    if shutil.which(command[0]) is None:
        return 0
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return sum(map(int, told.split()))
