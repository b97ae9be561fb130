"""How fast a cancelled prediction leaves the engine and gives its slot back, while 63 others run."""

from __future__ import annotations

import json
import socket
import statistics
import struct
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from runner.protocol.status import IN_FLIGHT
from tests.performance.row import Row
from tests.performance.serving_rows import RATE, STREAMS, runner
from tests.support.load import run_streams

SAMPLES = 8
SECONDS = 30
LIMIT_MS = 100
_BODY = json.dumps({"input": {"prompt": "x", "max_tokens": SECONDS * RATE}})


class Victim:
    """A prediction that is going to be cancelled."""

    def __init__(self, url: str, way: str, name: str) -> None:
        self._url, self._way, self._name = url, way, name
        address = urlsplit(url)
        accept = "application/json" if way == "a plain POST dropped" else "text/event-stream"
        self._connection = socket.create_connection((address.hostname, address.port))
        self._connection.sendall(
            f"PUT /predictions/{name} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(_BODY)}\r\n\r\n{_BODY}".encode()
        )

    def cancel(self, http: httpx2.Client) -> None:
        if self._way == "POST cancel":
            http.post(f"{self._url}/predictions/{self._name}/cancel").raise_for_status()
        else:
            self._connection.close()

    def close(self) -> None:
        self._connection.close()


def in_flight(page: Path) -> int:
    """How many requests the engine works on, as the bridge says."""
    number: int = struct.unpack_from("<I", page.read_bytes(), IN_FLIGHT)[0]
    return number


def wait(condition, seconds: float = 10) -> float:
    """The time at which `condition()` was true."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s")
        time.sleep(0.001)
    return time.monotonic()


def is_taken(url: str, http: httpx2.Client) -> bool:
    """Whether one more prediction is let in; Cog answers 409 while all its slots are used."""
    answer = http.post(
        f"{url}/predictions",
        json={"input": {"prompt": "x", "max_tokens": 1}},
        headers={"Prefer": "respond-async"},  # the answer comes when it is let in, not when it is done
    )
    return answer.status_code == httpx2.codes.ACCEPTED


def measure(url: str, page: Path) -> dict[str, list[tuple[float, float]]]:
    """By way of cancelling: seconds until the engine has stopped, and until the slot is free."""
    figures: dict[str, list[tuple[float, float]]] = {}
    with httpx2.Client() as http:
        for way in ("event stream closed", "POST cancel", "a plain POST dropped"):
            for sample in range(SAMPLES):
                victim = Victim(url, way, f"{way[:6].replace(' ', '-')}{sample}")
                wait(lambda: in_flight(page) == STREAMS)
                started = time.monotonic()
                victim.cancel(http)
                stopped = wait(lambda: in_flight(page) < STREAMS)
                free = wait(lambda: is_taken(url, http))
                victim.close()
                figures.setdefault(way, []).append((stopped - started, free - started))
                time.sleep(0.5)  # for the one more to be over, and its slot free
    return figures


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        settings = {"TMPDIR": temporary, "MAX_PREDICTIONS": str(STREAMS)}
        with runner(directory, RATE, concurrency=STREAMS, **settings) as server:
            (page,) = directory.glob("cog-triton-*/status")
            inputs = [{"prompt": "x", "max_tokens": SECONDS * RATE}] * (STREAMS - 1)
            under_way = threading.Event()
            others = threading.Thread(
                target=run_streams, args=(server.url, inputs), kwargs={"during": lambda _: under_way.set()}
            )
            others.start()
            under_way.wait(30)
            figures = measure(server.url, page)
            others.join()
    rows = []
    for way, samples in figures.items():
        stopped, free = zip(*samples, strict=True)
        name = f"{way} with {STREAMS} streams"
        rows += [
            Row(
                f"{name}: until the engine stops, median",
                1000 * statistics.median(stopped),
                "ms",
                at_most=LIMIT_MS,
            ),
            Row(
                f"{name}: until its slot is free, median",
                1000 * statistics.median(free),
                "ms",
                at_most=LIMIT_MS,
            ),
        ]
    return rows
