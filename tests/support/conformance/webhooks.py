"""An address for webhooks, which writes down what comes."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from typing import Any

from tests.support.loopback import LoopbackServer, QuietHandler

_LONGEST_SECONDS = 20


class Hooks(LoopbackServer):
    """Paths under `url`, one per prediction; one that ends in `/broken` answers 500 to the first two."""

    def __init__(self) -> None:
        self._calls: dict[str, list[tuple[dict[str, str], Any]]] = defaultdict(list)
        hooks = self

        class Handler(QuietHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                calls = hooks._calls[self.path]
                calls.append((headers, json.loads(body)))
                self.send_response(500 if self.path.endswith("/broken") and len(calls) < 3 else 200)
                self.send_header("content-length", "0")
                self.end_headers()

        super().__init__(Handler)

    def calls(self, path: str, least: int, *, to_the_end: bool) -> list[tuple[dict[str, str], Any]]:
        """What came to a path: once there are that many, with `to_the_end` also the end, and no more for a
        moment.
        """
        deadline = time.monotonic() + _LONGEST_SECONDS
        while time.monotonic() < deadline:
            calls = list(self._calls[path])
            ended = any(body["status"] != "processing" for _, body in calls)
            if len(calls) >= least and (ended or not to_the_end):
                break
            time.sleep(0.02)
        time.sleep(0.2)
        return list(self._calls[path])
