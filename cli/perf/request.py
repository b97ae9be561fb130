"""One request of a load, and what was observed of it."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from itertools import pairwise

CUT = "cut"
STALLED = "stalled"
ENDLESS = "endless"
NOT_CONNECTED = "not connected"
REFUSED = "an error without a code"


@dataclass(slots=True, eq=False)
class Request:
    """Times are seconds of `time.perf_counter`."""

    number: int
    intended: float
    """When it was due: latencies count from here, whatever delayed the client."""
    sent: float = 0.0
    ended: float = 0.0
    events: array[float] = field(default_factory=lambda: array("d"))
    """When text came; events that were read together have one time."""
    pieces: list[str] = field(default_factory=list)
    """The text; emptied once it has been checked."""
    tokens: int | None = None
    """Tokens of the answer by the server's own count; None if it reports none."""
    prompt_tokens: int | None = None
    complete: bool = False
    """Whether the server said that this was all."""
    failure: str | None = None
    """The code of the error, such as E2106, HTTP 500, stalled or cut."""
    unfinished: bool = False
    """Whether the load was stopped while it was in progress."""
    said: str = ""
    """What the server said about the failure."""
    lost: int = 0
    """Tokens that should have been in the text."""
    wrong: int = 0
    """Tokens of the text that should not have been in it, or were out of place."""

    def fail(self, code: str, said: str = "") -> None:
        """Record a failure; only the first one counts."""
        if self.failure is None:
            self.failure, self.said = _shown(code), _shown(said[:500])

    @property
    def is_good(self) -> bool:
        """Whether it was answered, to the end and without a failure."""
        return self.failure is None and not self.unfinished

    @property
    def token_count(self) -> int:
        """Tokens of the answer; by its events if the server reports no number."""
        return len(self.events) if self.tokens is None else self.tokens

    @property
    def time_to_first_token(self) -> float | None:
        return self.events[0] - self.intended if self.events else None

    @property
    def request_latency(self) -> float:
        return self.ended - self.intended

    @property
    def inter_token_latency(self) -> float | None:
        """Mean time between two tokens, as aiperf defines it; None without events."""
        if len(self.events) < 2 or self.token_count < 2:
            return None
        return (self.events[-1] - self.events[0]) / (self.token_count - 1)

    @property
    def pause(self) -> tuple[float, float]:
        """Begin and end of the longest one between two events, or between the last one and the end."""
        times = [*self.events, self.ended] if self.events else []
        return max(pairwise(times), key=lambda pair: pair[1] - pair[0], default=(0.0, 0.0))

    @property
    def longest_pause(self) -> float:
        begin, end = self.pause
        return end - begin


def _shown(said: str) -> str:
    """Without what a terminal would obey."""
    return "".join(one if one.isprintable() else " " for one in said)
