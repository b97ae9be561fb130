"""Stop sequences: text that ends a generation and is not part of it."""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def parse_stop_sequences(value: str | None) -> tuple[str, ...]:
    """The stop sequences of one input: separated by commas (spaces count), or a JSON list of strings.

    The list is for sequences that hold a comma. Empty sequences are left out.
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


class _State:
    """A node of the automaton: the text so far ends in the `depth` first characters of a stop sequence."""

    __slots__ = ("depth", "fallback", "following", "match")

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.following: dict[str, _State] = {}
        self.fallback = self  # the longest proper suffix that also begins a stop sequence
        self.match = 0  # length of the longest stop sequence that the text ends in; 0: in none


def _automaton(stops: Iterable[str]) -> _State:
    """The root of the automaton of Aho and Corasick (1975) for these sequences."""
    root = _State(0)
    for stop in stops:
        state = root
        for character in stop:
            state = state.following.setdefault(character, _State(state.depth + 1))
        state.match = state.depth
    queue = deque(root.following.values())
    for state in root.following.values():
        state.fallback = root
    while queue:
        state = queue.popleft()
        for character, child in state.following.items():
            child.fallback = _step(root, state.fallback, character)
            child.match = child.match or child.fallback.match
            queue.append(child)
    return root


def _step(root: _State, state: _State, character: str) -> _State:
    while (following := state.following.get(character)) is None:
        if state is root:
            return root
        state = state.fallback
    return following


class StopMatcher:
    """Cuts a stream of text at the stop sequence that begins first, in time linear in the text.

    Text that may be the beginning of a stop sequence is kept back until that is known. Empty stop sequences
    are ignored.
    """

    def __init__(self, stops: Iterable[str] = ()) -> None:
        self.stopped = False
        self._root = self._state = _automaton(stops)
        self.empty = not self._root.following
        """Whether there is nothing to stop at."""
        self._held = ""  # not sent yet; it ends in what `_state` stands for
        self._match: int | None = None  # where in it the first stop sequence begins, unless one does before

    def push(self, text: str) -> str:
        """The text that is now safe to send; none once `stopped`."""
        if self.stopped:
            return ""
        if self.empty:
            return text
        held = self._held + text
        match, state = self._match, self._state
        begin = 0  # of what the state stands for: nothing before it can become a stop sequence
        for end, character in enumerate(text, len(self._held) + 1):
            state = _step(self._root, state, character)
            begin = end - state.depth
            if state.match and (match is None or end - state.match < match):
                match = end - state.match
            if match is not None and begin >= match:
                self.stopped = True
                self._held = ""
                return held[:match]
        self._state = state
        self._match = None if match is None else match - begin
        self._held = held[begin:]
        return held[:begin]

    def flush(self) -> str:
        """The rest of the text, once there is no more to come; it may turn out to be stopped."""
        rest, self._held = self._held[: self._match], ""
        self.stopped = self.stopped or self._match is not None
        return rest
