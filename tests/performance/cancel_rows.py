"""How soon a prediction that nobody wants any more has left the engine, while 511 others run."""

from __future__ import annotations

import json
import re
import socket
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx2

from tests.performance.load import load, runner, scaled
from tests.performance.row import Row
from tests.support.processes import descendants

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.performance.load import Served

SAMPLES = 9
SECONDS = 40
RATE = 36
LIMIT_MS = 20
WAYS = ("event stream closed", "POST cancel", "plain POST closed")
_FAILED = re.compile(r'^nv_inference_request_failure\{model="tensorrt_llm".*\} (\d+)', re.MULTILINE)


def argument(server: Served, name: str) -> str:
    """What Triton was started with."""
    for pid in descendants(server.pid):
        for part in Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0"):
            if part.startswith(f"{name}="):
                return part.removeprefix(f"{name}=")
    raise AssertionError(f"no process was started with {name}")


class Victim:
    """A prediction that is going to be cancelled."""

    def __init__(self, url: str, way: str, name: str) -> None:
        self._url, self._way, self._name = url, way, name
        address = urlsplit(url)
        accept = "application/json" if way == "plain POST closed" else "text/event-stream"
        body = json.dumps({"input": {"prompt": "x", "max_tokens": SECONDS * RATE}})
        self._connection = socket.create_connection((address.hostname, address.port))
        self._connection.sendall(
            f"PUT /predictions/{name} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )

    def cancel(self, http: httpx2.Client) -> None:
        if self._way == "POST cancel":
            http.post(f"{self._url}/predictions/{self._name}/cancel").raise_for_status()
        else:
            self._connection.close()

    def close(self) -> None:
        self._connection.close()


def until(failed: Callable[[], int], count: int, started: float) -> float:
    """Seconds from `started` until Triton has counted that many requests that ended without success."""
    while failed() < count:
        if time.monotonic() > started + 10:
            raise AssertionError("Triton does not count a cancelled request")
        time.sleep(0.001)
    return time.monotonic() - started


def measure(server: Served) -> dict[str, list[float]]:
    """By way of cancelling, seconds until the engine has ended the request and Triton has counted it."""
    metrics = f"http://127.0.0.1:{argument(server, '--metrics-port')}/metrics"
    figures: dict[str, list[float]] = {way: [] for way in WAYS}
    with httpx2.Client() as http:

        def failed() -> int:
            return sum(map(int, _FAILED.findall(http.get(metrics).text)))

        for sample in range(SAMPLES):
            for way in WAYS:
                victim = Victim(server.url, way, f"{WAYS.index(way)}-{sample}")
                time.sleep(0.25)
                count = failed()
                started = time.monotonic()
                victim.cancel(http)
                figures[way].append(until(failed, count + 1, started))
                victim.close()
    return figures


def rows() -> list[Row]:
    others = scaled(512) - 1
    with (
        tempfile.TemporaryDirectory() as temporary,
        runner(Path(temporary), step_seconds=1 / RATE) as server,
    ):
        running = threading.Thread(target=load, args=(server, others, SECONDS * RATE), daemon=True)
        running.start()
        time.sleep(4)
        figures = measure(server)
        if not running.is_alive():
            raise AssertionError("the other streams had ended")
    return [
        Row(
            f"{way}, with {others + 1} streams: until the engine has ended it, median",
            1000 * statistics.median(samples),
            "ms",
            at_most=LIMIT_MS,
        )
        for way, samples in figures.items()
    ]
