"""What a load is: its steps, when requests are sent in each, what they ask for, and what is good enough."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Literal

import orjson

from shared.sizes import readable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

Arrivals = Literal["poisson", "constant"]

_OBJECTIVES = {
    "ttft": "time_to_first_token",
    "itl": "inter_token_latency",
    "latency": "request_latency",
}
_OBJECTIVE = re.compile(r"(\w+)=(\d{1,9}(?:\.\d{1,9})?)(ms|s)", re.ASCII)
_SEED = 0  # the same load each time
_MAX_BYTES = 256_000_000  # of prompts: they stay in memory

MAX_CONCURRENCY = 100_000
"""Requests at the same time: far beyond what a client can have."""


@dataclass(frozen=True)
class Step:
    """One load, held for some seconds.

    One of `concurrency`, `rate` and `batch` is set: that many requests at the same time, the next one when
    one ends; that many a second, regardless of the server's answers; or that many together, again a second
    after all have ended.
    """

    seconds: float
    concurrency: int | None = None
    rate: float | None = None
    arrivals: Arrivals = "poisson"
    batch: int | None = None
    most: int | None = None
    """Requests, at most."""

    @property
    def label(self) -> str:
        """Its name in a report."""
        if self.rate is not None:
            return f"{self.rate:g} requests/s"
        if self.batch is not None:
            return f"batches of {self.batch}"
        return f"{self.concurrency} stream{'' if self.concurrency == 1 else 's'}"

    @property
    def expected(self) -> int | None:
        """Requests that are sent if all is well; None: as many as the server allows."""
        if self.rate is None:
            return self.most
        return sum(1 for _ in self.offsets())

    def offsets(self) -> Iterator[float]:
        """When requests are to be sent, in seconds from the start, at a rate."""
        assert self.rate is not None
        chance, when = random.Random(_SEED), 0.0  # noqa: S311 - a load, not a secret
        for number in count():
            if when >= self.seconds or number == self.most:
                return
            yield when
            poisson = self.arrivals == "poisson"
            when = when + chance.expovariate(self.rate) if poisson else (number + 1) / self.rate


@dataclass(frozen=True)
class Objectives:
    """What a request must meet to be good, in seconds, by the name of the metric."""

    limits: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> Objectives:
        """`ttft=500ms,itl=50ms`. Raises ValueError."""
        limits = {}
        for one in text.split(","):
            found = _OBJECTIVE.fullmatch(one.strip())
            if found is None or found[1] not in _OBJECTIVES:
                names = ", ".join(_OBJECTIVES)
                raise ValueError(f"{one!r} is not NAME=500ms or NAME=2s, where NAME is one of {names}")
            limits[_OBJECTIVES[found[1]]] = float(found[2]) / (1000 if found[3] == "ms" else 1)
        return cls(limits)


class Prompts:
    """Prompts by the number of the request."""

    def __init__(self, texts: Sequence[str] = (), words: int = 0) -> None:
        """These, over and over; without any, that many words, the first of which differs for each request.

        Identical prompts would be found in a prefix cache.
        """
        self._texts, self._words = texts, words

    def __getitem__(self, number: int) -> str:
        if self._texts:
            return self._texts[number % len(self._texts)]
        return f"{number % 10_000}" + " a" * (self._words - 1)

    @classmethod
    def of_file(cls, path: Path) -> Prompts:
        """A prompt on each line: text, or JSON with `prompt`, `text` or `text_input`. Raises OSError and
        ValueError.
        """
        texts = []
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise ValueError(f"it has more than {readable(_MAX_BYTES)}")
        # Not splitlines(), which also splits at U+2028, form feeds and others: prompts may contain them.
        for number, line in enumerate(re.split(r"\r?\n", content.decode()), 1):
            text = line
            if line.startswith("{"):
                try:
                    found = orjson.loads(line)
                except orjson.JSONDecodeError:
                    raise ValueError(f"line {number} is not JSON") from None
                text = found.get("prompt") or found.get("text") or found.get("text_input") or ""
                if not isinstance(text, str) or not text:
                    raise ValueError(f"no prompt in {line[:80]!r}")
            if text.strip():
                texts.append(text)
        if not texts:
            raise ValueError("it has no prompts")
        return cls(texts)
