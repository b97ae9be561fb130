"""Stop sequences: text that ends a generation and is not part of it."""

from __future__ import annotations

import json
from collections import deque
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


MAX_STOP_CHARACTERS = 1 << 14
"""Of all stop sequences of a request: each is a node of the automaton that searches for them."""


def parse_stop_sequences(value: str | None) -> tuple[str, ...]:
    """The stop sequences of one input: separated by commas (spaces count), or a JSON list of strings.

    The list is for sequences with a comma. Empty sequences are dropped.
    """
    if not value:
        return ()
    if value.startswith("["):
        try:
            sequences = json.loads(value)
        except (ValueError, RecursionError):
            sequences = None
        if isinstance(sequences, list) and all(isinstance(sequence, str) for sequence in sequences):
            return tuple(filter(None, sequences))
    return tuple(filter(None, value.split(",")))


class _Automaton:
    """The automaton of Aho and Corasick (1975) for a set of sequences.

    A state is a number: it says in which sequence's first characters the text so far ends. 0 is the
    beginning. (States that were objects would refer to each other in cycles, and stay until they are
    collected.)
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._following: list[dict[str, int]] = [{}]
        self._fallback = [0]  # the longest proper suffix that also begins a sequence
        self.depth = [0]  # how many first characters of a sequence the text ends in
        self.match = [0]  # length of the longest sequence that the text ends in; 0: in none
        for stop in stops:
            state = 0
            for character in stop:
                state = self._following[state].get(character) or self._add(state, character)
            self.match[state] = self.depth[state]
        queue = deque(self._following[0].values())
        while queue:
            state = queue.popleft()
            for character, child in self._following[state].items():
                fallback = self._fallback[child] = self.step(self._fallback[state], character)
                self.match[child] = self.match[child] or self.match[fallback]
                queue.append(child)

    def _add(self, state: int, character: str) -> int:
        new = self._following[state][character] = len(self.depth)
        self._following.append({})
        self._fallback.append(0)
        self.depth.append(self.depth[state] + 1)
        self.match.append(0)
        return new

    @property
    def empty(self) -> bool:
        """Whether it has no sequences."""
        return not self._following[0]

    def step(self, state: int, character: str) -> int:
        """The state after one more character."""
        while (following := self._following[state].get(character)) is None:
            if state == 0:
                return 0
            state = self._fallback[state]
        return following


@lru_cache(maxsize=4)
def _automaton(stops: tuple[str, ...]) -> _Automaton:
    """One for all texts of a request: it takes long to make, and a search does not change it."""
    return _Automaton(stops)


class StopMatcher:
    """Cuts a stream of text at the stop sequence that begins first, in time linear in the text.

    Text that may be the beginning of a stop sequence is held back until that is known. Empty stop sequences
    are ignored.
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self.stopped = False
        self._automaton = _automaton(tuple(stops))
        self._state = 0
        self.empty = self._automaton.empty
        """Whether there is nothing to stop at."""
        self._held = ""  # not sent yet; it ends in what `_state` represents
        self._match: int | None = None  # where in it the first stop sequence begins, if any

    def push(self, text: str, *, stops: bool = True) -> str:
        """The text that is now safe to send; none once `stopped`. Without `stops`, no sequence can end in
        this text; one that ends later may begin in it.
        """
        if self.stopped:
            return ""
        if self.empty:
            return text
        held = self._held + text
        match, state = self._match, self._state
        step, depths, matches = self._automaton.step, self._automaton.depth, self._automaton.match
        begin = 0  # of what the state represents: nothing before it can become a stop sequence
        for end, character in enumerate(text, len(self._held) + 1):
            state = step(state, character)
            begin = end - depths[state]
            if stops and matches[state] and (match is None or end - matches[state] < match):
                match = end - matches[state]
            if match is not None and begin >= match:
                self.stopped = True
                self._held = ""
                return held[:match]
        self._state = state
        self._match = None if match is None else match - begin
        self._held = held[begin:]
        return held[:begin]

    def flush(self) -> str:
        """The rest of the text, once no more will come; it may turn out to be stopped."""
        rest, self._held = self._held[: self._match], ""
        self.stopped = self.stopped or self._match is not None
        return rest
