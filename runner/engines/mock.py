"""The mock engine: a fixed token rate per stream, for load tests; errors and crashes on request.

`engine_dir/config.json` may hold `tokens_per_second` (of each stream; 0 or absent: as fast as they are read)
and `time_to_first_token` (s). With `step_seconds`, tokens come as a real engine's do: in steps of that many
seconds for all streams together, one token for each. With `max_batch_size`, that many requests run at the
same time, and others wait for one of them to end. `engine_dir/engine/mock.json` says which tokens:

    {"first_token_id": 100, "token_count": 50, "crash_id": 7, "error_id": null, "hang_id": null,
     "tokens_per_second_id": 8, "time_to_first_token_ms_id": 9}

Token i of a request is `first_token_id + i % token_count`. A prompt with `error_id` fails half-way; one with
`crash_id` ends the process after its first token; one with `hang_id` never gets a token. In a prompt, the
token `first_token_id + n` after `tokens_per_second_id` or `time_to_first_token_ms_id` sets that to n for the
request. When log probabilities are asked for, a token has -0.5, and the alternatives after it -1, -1.5, ...
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from array import array
from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING

from runner.protocol.engine import MAX_TOKENS, FinishReason, Limits, LogProbs, Output, Statistics
from shared.errors import EngineInternalError, EngineStartFailed, InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from runner.protocol.engine import Request

_TICK = 0.001  # s between two steps, at least: requests that are due in between share one
_MAX_STEP_TOKENS = 16  # of one request in one step
_MAX_IDS = 1 << 20  # more than any tokenizer has; all that the script names are kept in memory
# A stop word ends with its last token, the length after it, an end id with the token that would follow.
_AT_ONE_PLACE = (FinishReason.STOP_WORDS, FinishReason.LENGTH, FinishReason.END_ID)


@dataclass(frozen=True, slots=True)
class _Script:
    """What engine/mock.json says."""

    first_token_id: int
    token_count: int
    crash_id: int | None = None
    error_id: int | None = None
    hang_id: int | None = None
    tokens_per_second_id: int | None = None
    time_to_first_token_ms_id: int | None = None

    def __post_init__(self) -> None:
        first, count = self.first_token_id, self.token_count
        if not (type(first) is type(count) is int and 0 <= first < _MAX_IDS and 1 <= count <= _MAX_IDS):
            raise ValueError

    def end_of(self, request: Request) -> tuple[int, FinishReason]:
        """How many tokens the request gets, and why not more."""
        ends = [(request.max_tokens, FinishReason.LENGTH)]
        at_least = max(request.sampling.min_tokens or 0, 0)
        ends += [
            (self._position(end_id, at_least), FinishReason.END_ID)
            for end_id in request.end_ids
            if self._is_known(end_id)
        ]
        for word in request.stop_words:
            cyclic = all((b - a - 1) % self.token_count == 0 for a, b in pairwise(word))
            if word and cyclic and all(map(self._is_known, word)):
                start = self._position(word[0], max(at_least - len(word), 0))
                ends.append((start + len(word), FinishReason.STOP_WORDS))
        return min(ends, key=lambda end: (end[0], _AT_ONE_PLACE.index(end[1])))

    def number(self, name: str, prompt: Sequence[int], ids: set[int]) -> int | None:
        """The number after the token of that name in a prompt of these ids. Raises InvalidArgument for one
        without.
        """
        token = getattr(self, f"{name}_id")
        if token not in ids:
            return None
        following = list(prompt).index(token) + 1
        if following < len(prompt) and self._is_known(prompt[following]):
            return prompt[following] - self.first_token_id
        reason = f"the prompt must have a number from 0 to {self.token_count - 1} after <{name}>"
        raise InvalidArgument(argument=name, value="missing", reason=reason)

    def _is_known(self, token: int) -> bool:
        return 0 <= token - self.first_token_id < self.token_count

    def _position(self, token: int, at_least: int) -> int:
        """The first position of this token from `at_least` on."""
        return at_least + (token - self.first_token_id - at_least) % self.token_count


@dataclass(slots=True)
class _Stream:
    """One request: what it will get, and how much of it it has got."""

    request_id: int
    delay: float  # s, from its start to its first token
    rate: float | None  # tokens a second by its own clock; None: one in each common step
    length: int
    finish_reason: FinishReason
    fails: bool
    crashes: bool
    hangs: bool
    log_probs: int | None
    sent: int = 0
    start: float = inf  # when its first token is due; inf: it waits


class MockEngine:
    """Tokens by the clock. Deadlines are absolute (start + i / rate), so that no rate drifts."""

    def __init__(self, engine_dir: Path) -> None:
        """Read the two files. Raises EngineStartFailed for invalid ones."""
        try:
            config = json.loads((engine_dir / "config.json").read_text())
            self._script = _Script(**json.loads((engine_dir / "engine/mock.json").read_text()))
            self._rate = float(config.get("tokens_per_second") or 0) or inf
            self._first_token_delay = float(config.get("time_to_first_token") or 0)
            self._step_seconds = float(config.get("step_seconds") or 0)
            self._pause = self._step_seconds or (_TICK if self._rate < inf else 0.0)  # s, between steps
            self._most = int(config.get("max_batch_size") or sys.maxsize)
            sequence = int(config.get("max_seq_len") or MAX_TOKENS)
            # With others, it would start and then answer nobody; NaN is in no range.
            seconds_are_valid = 0 <= self._first_token_delay < inf and 0 <= self._step_seconds < inf
            if not (seconds_are_valid and self._rate > 0 and self._most > 0 and sequence > 0):
                raise ValueError
        except (OSError, ValueError, OverflowError, RecursionError, TypeError, AttributeError) as error:
            raise EngineStartFailed(reason="the mock's config.json or mock.json is not valid") from error
        self.limits = Limits(sequence, sequence - 1)
        once = range(self._script.first_token_id, self._script.first_token_id + self._script.token_count)
        self._cycle = array("i", [*once] * (1 + _MAX_STEP_TOKENS // self._script.token_count + 1))
        self._changed = threading.Condition()
        self._streams: dict[int, _Stream] = {}
        self._due: list[tuple[float, int]] = []  # a heap: when a request gets its next token
        self._waiting: deque[int] = deque()
        self._cancelled: set[int] = set()
        self._shut_down = False

    def submit(self, request: Request) -> None:
        """Start the request's clock. Raises InvalidArgument for a prompt that sets a speed to something that
        is not a number.
        """
        tokens = request.input_token_ids
        prompt = set(tokens)
        rate = self._script.number("tokens_per_second", tokens, prompt)
        milliseconds = self._script.number("time_to_first_token_ms", tokens, prompt)
        delay = self._first_token_delay if milliseconds is None else milliseconds / 1000
        length, finish_reason = self._script.end_of(request)
        stream = _Stream(
            request_id=request.request_id,
            delay=delay,
            rate=self._rate_of(rate),
            length=length,
            finish_reason=finish_reason,
            fails=self._script.error_id in prompt,
            crashes=self._script.crash_id in prompt,
            hangs=self._script.hang_id in prompt,
            log_probs=request.log_probs,
        )
        with self._changed:
            self._streams[request.request_id] = stream
            self._waiting.append(request.request_id)
            self._begin_waiting()
            self._changed.notify()

    def _begin_waiting(self) -> None:
        """Start the clocks of waiting streams, as many as may run."""
        while self._waiting and len(self._streams) - len(self._waiting) < self._most:
            stream = self._streams[self._waiting.popleft()]
            stream.start = time.monotonic() + stream.delay
            if not stream.hangs:
                heappush(self._due, (stream.start, stream.request_id))

    def _rate_of(self, asked: int | None) -> float | None:
        if asked is None:
            return None if self._step_seconds else self._rate
        return asked or inf

    def cancel(self, request_id: int) -> None:
        """Stop the request at the next step."""
        with self._changed:
            if request_id in self._streams:
                self._cancelled.add(request_id)
                self._changed.notify()

    def statistics(self) -> Statistics:
        """Without `max_batch_size` nothing waits."""
        waiting = len(self._waiting)
        return Statistics(active_requests=len(self._streams) - waiting, queued_requests=waiting)

    def shutdown(self) -> None:
        """Let `steps` end."""
        with self._changed:
            self._shut_down = True
            self._changed.notify()

    def steps(self) -> Iterator[Sequence[Output]]:
        """Yield what is due, at most once per tick."""
        last_step = -inf
        while True:
            with self._changed:
                now = self._wait(last_step + self._pause)
                if self._shut_down:
                    return
                outputs = [Output(request_id, (), FinishReason.CANCELLED) for request_id in self._cancelled]
                for request_id in self._cancelled:
                    if self._streams.pop(request_id).start == inf:
                        self._waiting.remove(request_id)
                self._cancelled.clear()
                is_step = now >= last_step + self._pause
                streams = self._take_due(now) if is_step else []
                for stream in streams:
                    outputs += self._advance(stream, now)
                self._begin_waiting()
            yield outputs
            if any(stream.crashes for stream in streams):
                os._exit(1)
            # Steps that are a little late do not shift those that follow; cancels are reported between two.
            if is_step:
                last_step = max(last_step + self._step_seconds, now - self._step_seconds)

    def _wait(self, not_before: float) -> float:
        """Sleep until there is something to do; return the time."""
        while True:
            now = time.monotonic()
            if self._shut_down or self._cancelled:
                return now
            due = max(self._due[0][0], not_before) if self._due else inf
            if due <= now:
                return now
            self._changed.wait(min(due - now, threading.TIMEOUT_MAX))

    def _take_due(self, now: float) -> list[_Stream]:
        """Take the streams that get tokens now from the heap."""
        streams = []
        while self._due and self._due[0][0] <= now:
            _, request_id = heappop(self._due)
            stream = self._streams.get(request_id)
            if stream is not None:  # it may have been cancelled
                streams.append(stream)
        return streams

    def _advance(self, stream: _Stream, now: float) -> Iterator[Output]:
        """Give the stream the tokens that are due, and plan when it gets the next one."""
        end = stream.length // 2 if stream.fails else stream.length
        rate = stream.rate
        due = 1 if rate is None else _due_tokens(rate, now - stream.start) - stream.sent
        count = min(due, end - stream.sent, 1 if stream.crashes else _MAX_STEP_TOKENS)
        first = stream.sent % self._script.token_count
        tokens = self._cycle[first : first + count]
        stream.sent += count
        if stream.sent < end:
            due_at = now if rate is None else stream.start + stream.sent / rate
            heappush(self._due, (due_at, stream.request_id))
            yield Output(stream.request_id, tokens, log_probs=self._log_probs(tokens, stream.log_probs))
            return
        del self._streams[stream.request_id]
        if stream.fails:
            yield Output(stream.request_id, tokens, log_probs=self._log_probs(tokens, stream.log_probs))
            yield Output(stream.request_id, error=EngineInternalError(reason="the prompt asked for it"))
        else:
            log_probs = self._log_probs(tokens, stream.log_probs)
            yield Output(stream.request_id, tokens, stream.finish_reason, log_probs=log_probs)

    def _log_probs(self, tokens: Sequence[int], others: int | None) -> Sequence[LogProbs]:
        """The likeliest of all is the token itself."""
        if others is None:
            return ()
        first, count = self._script.first_token_id, self._script.token_count
        return [
            LogProbs(
                -0.5,
                [(first + (token - first + place) % count, -0.5 * (place + 1)) for place in range(others)],
            )
            for token in tokens
        ]


def _due_tokens(rate: float, elapsed: float) -> int:
    """How many tokens a stream must have after that many seconds. The first is due immediately.

    A token that is due within a microsecond is due: the clock and the division may round apart.
    """
    if rate == inf:
        return sys.maxsize
    return int((elapsed + 1e-6) * rate) + 1
