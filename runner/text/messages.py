"""The messages of a conversation."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from shared.errors import MessagesInvalid
from shared.validation import wanted


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
