"""One request's path from tokens to the text that is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .detokenizer import Detokenizer
from .stop import StopMatcher

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .tokenizer import Tokenizer


class TextStream:
    """Detokenises, and cuts at the first stop sequence, as tokens arrive."""

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str] = (), min_tokens: int = 0) -> None:
        """`min_tokens`: so many have no stop sequence end in their text."""
        self._detokenizer = Detokenizer(tokenizer)
        self._stops = StopMatcher(stops)
        self._min_tokens = min_tokens
        self.token_count = 0
        """Tokens pushed, up to and including the one that completed a stop sequence."""

    @property
    def stopped(self) -> bool:
        """Whether a stop sequence was found; tokens that come later are ignored."""
        return self._stops.stopped

    def push(self, tokens: Sequence[int]) -> str:
        """The text that can be sent now, perhaps none. The same however the tokens are cut into pushes."""
        if self._stops.empty:
            self.token_count += len(tokens)
            return self._detokenizer.push(tokens)
        sent = []
        for token in tokens:
            if self._stops.stopped:
                break
            self.token_count += 1
            may_stop = self.token_count > self._min_tokens
            sent.append(self._stops.push(self._detokenizer.push((token,)), stops=may_stop))
        return "".join(sent)

    def finish(self) -> str:
        """The rest of the text, once there are no more tokens. Call it once."""
        rest = self._stops.push(self._detokenizer.flush(), stops=self.token_count > self._min_tokens)
        return rest + self._stops.flush()
