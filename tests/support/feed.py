"""A feed driven by hand, over its own socket."""

from __future__ import annotations

import socket
from collections import defaultdict
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from runner.protocol.engine import FinishReason
from runner.protocol.feed import (
    EngineStatus,
    FeedReader,
    FeedStatistics,
    Opened,
    encode_cancel,
    encode_request,
)
from runner.protocol.tokens import request_tensors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from runner.protocol.engine import Output, Request
    from runner.protocol.tensors import RawTensor
    from tests.support.triton import Triton


class Feed:
    """One connection to the bridge's socket, and what has come over it."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(20)
        self.socket.connect(str(path))
        self._messages = self._read()
        self.tokens: dict[int, list[int]] = defaultdict(list)
        self.ends: dict[int, list[Output]] = defaultdict(list)
        self.statuses: list[EngineStatus] = []
        self.steps = 0
        try:
            assert next(self._messages) == Opened()
        except BaseException:
            self.socket.close()
            raise

    def _read(self) -> Iterator:
        reader = FeedReader()
        while data := self.socket.recv(1 << 16):
            yield from reader.messages(data)

    def next_step(self) -> list[Output]:
        """Take what comes up to the next step, with it."""
        for it in self._messages:
            if isinstance(it, EngineStatus):
                self.statuses.append(it)
            if isinstance(it, list):
                self._take(it)
                return it
        raise EOFError

    def wait_status(self, condition) -> None:
        """Take what comes, until a status of the engine is as `condition` wants it."""
        for it in self._messages:
            if isinstance(it, list):
                self._take(it)
            elif isinstance(it, EngineStatus):
                self.statuses.append(it)
                if condition(it):
                    return
        raise EOFError

    def wait_statistics(self, active_requests: int) -> list[int]:
        """The active requests that the engine reported one after the other, up to this number of them."""
        told = []
        for it in self._messages:
            if isinstance(it, FeedStatistics) and it.statistics.active_requests not in told[-1:]:
                told.append(it.statistics.active_requests)
            if told[-1:] == [active_requests]:
                return told
        raise EOFError

    def _take(self, step: list[Output]) -> None:
        self.steps += 1
        for output in step:
            number = output.request_id
            assert number not in self.ends, f"{output} after {self.ends[number]}"
            self.tokens[number] += output.tokens
            if output.error is not None or output.finish_reason is not FinishReason.NOT_FINISHED:
                self.ends[number].append(output)

    def wait_ends(self, numbers: Iterable[int]) -> None:
        """Take steps until all of these requests have ended."""
        numbers = set(numbers)
        while not numbers <= self.ends.keys():
            self.next_step()

    def read_to_the_end(self) -> None:
        """Take what comes, until the bridge closes the feed."""
        with suppress(EOFError, ConnectionError):
            while True:
                self.next_step()

    def submit(self, requests: dict[int, Request], *extra: RawTensor) -> None:
        """Send these requests, each under its number."""
        self.socket.sendall(b"".join(self.frame(number, it, *extra) for number, it in requests.items()))

    @staticmethod
    def frame(number: int, request: Request, *extra: RawTensor) -> bytes:
        """The request's frame; a tensor in `extra` stands in for the one of its name."""
        tensors = {tensor.name: tensor for tensor in (*request_tensors(request), *extra)}
        return encode_request(number, list(tensors.values()))

    def cancel(self, number: int) -> None:
        self.socket.sendall(encode_cancel(number))

    def close(self) -> None:
        self.socket.close()


@contextmanager
def feed(server: Triton) -> Iterator[Feed]:
    it = Feed(server.feed_path)
    try:
        yield it
    finally:
        it.close()
