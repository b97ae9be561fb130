"""The messages of a conversation."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from shared.errors import MessagesInvalid
from shared.validation import wanted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Message(BaseModel):
    """One turn of a conversation; other keys that templates know (name, tool_calls, ...) are passed on."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    role: str = Field(min_length=1)
    content: str


MAX_MESSAGES = 1 << 14
_MESSAGES = TypeAdapter(Annotated[list[Message], Field(max_length=MAX_MESSAGES, fail_fast=True)])


def parse_messages(text: str) -> list[dict[str, Any]]:
    """The messages in a JSON list. Raises MessagesInvalid."""
    try:
        messages = [message.model_dump() for message in _MESSAGES.validate_json(text)]
    except ValidationError as invalid:
        first = invalid.errors()[0]
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
        raise MessagesInvalid(reason=f"messages{where} {wanted(first)}") from None
    if not messages:
        raise MessagesInvalid(reason="the list is empty")
    return messages


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages, each with role and content, as they are sent to the chat template."""

    json: bytes
    """A list that is not empty."""
    begins_with_system: bool

    @classmethod
    def of(cls, messages: Sequence[Mapping[str, Any]]) -> Self:
        """Raises MessagesInvalid."""
        if not messages:
            raise MessagesInvalid(reason="the list is empty")
        try:
            return cls(json.dumps(messages).encode(), messages[0]["role"] == "system")
        except RecursionError:
            raise MessagesInvalid(reason="they are nested too deeply") from None

    def with_system(self, prompt: str) -> Self:
        """The same, after a system prompt."""
        system = json.dumps({"role": "system", "content": prompt}).encode()
        return type(self)(b"[%b, %b" % (system, self.json[1:]), begins_with_system=True)
