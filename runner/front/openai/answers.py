"""The bodies and events of OpenAI's API. The part that all events of an answer share is encoded once."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from runner.front.events import event_json

if TYPE_CHECKING:
    from collections.abc import Iterable

DONE = b"data: [DONE]\n\n"


def event(content: object) -> bytes:
    """An event with nothing in common with others."""
    return b"data: " + event_json(content) + b"\n\n"


@dataclass(frozen=True, slots=True)
class Form:
    """How chat completions and completions differ."""

    id_prefix: str
    whole: str
    """`object` of an answer that is sent as one body."""
    chunk: str
    """`object` of an event."""
    first: bytes
    """What precedes the text in the first event of a choice."""
    later: bytes
    after: bytes
    """What follows the text in an event."""
    end: bytes
    """What is in place of the text in the event with the finish reason."""


CHAT = Form(
    id_prefix="chatcmpl-",
    whole="chat.completion",
    chunk="chat.completion.chunk",
    first=b'"delta":{"role":"assistant","content":',
    later=b'"delta":{"content":',
    after=b"}",
    end=b'"delta":{}',
)
COMPLETION = Form(
    id_prefix="cmpl-",
    whole="text_completion",
    chunk="text_completion",
    first=b'"text":',
    later=b'"text":',
    after=b"",
    end=b'"text":""',
)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one answer."""

    prompt: int
    completion: int
    cached: int | None = None
    """Those tokens of the prompt that needed no computation, if the engine reports them."""

    def content(self) -> dict[str, Any]:
        """As OpenAI writes it."""
        content: dict[str, Any] = {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
        }
        if self.cached is not None:
            content["prompt_tokens_details"] = {"cached_tokens": self.cached}
        return content

    def tail(self) -> bytes:
        """How an event that has it ends."""
        return b'],"usage":' + orjson.dumps(self.content()) + b"}\n\n"


class Events:
    """The events of one streamed answer."""

    def __init__(self, answer: Answer, *, include_usage: bool) -> None:
        opening = event_json(answer.content(answer.form.chunk)).removesuffix(b"}")
        self.head = b"data: " + opening + b',"choices":['
        # If usage is asked for, OpenAI has it in every event, as null in all but the last.
        self.tail = b'],"usage":null}\n\n' if include_usage else b"]}\n\n"
        self._form = answer.form

    def choice(self, index: int) -> ChoiceEvents:
        """The events of one of its texts."""
        return ChoiceEvents(self, self._form, index)

    def usage(self, usage: Usage) -> bytes:
        """The last event before `DONE`, if it was asked for."""
        return self.head + usage.tail()


class ChoiceEvents:
    """The events of one text of a streamed answer."""

    def __init__(self, events: Events, form: Form, index: int) -> None:
        head = events.head + b'{"index":%d,' % index
        self._before = head + form.first
        self._later = head + form.later
        self._end = head + form.end
        self._after_content = form.after
        self._after = form.after + b',"logprobs":null,"finish_reason":null}' + events.tail
        self._after_text = form.after + b',"logprobs":'
        self._tail = events.tail

    def step(self, text: str, log_probs: object = None, usage: Usage | None = None) -> bytes:
        """The event of one engine step."""
        before, self._before = self._before, self._later
        if log_probs is None and usage is None:
            return before + event_json(text) + self._after
        told = self._after_text + event_json(log_probs) + b',"finish_reason":null}'
        return before + event_json(text) + told + self._tail_with(usage)

    def end(
        self, finish_reason: str, text: str = "", log_probs: object = None, usage: Usage | None = None
    ) -> bytes:
        """The last event of this text, with the last of it; of an empty one it is also the first."""
        is_bare = not text and log_probs is None and self._before is self._later
        content = self._end if is_bare else self._before + event_json(text) + self._after_content
        told = b',"logprobs":%b,"finish_reason":"%b"}' % (event_json(log_probs), finish_reason.encode())
        return content + told + self._tail_with(usage)

    def _tail_with(self, usage: Usage | None) -> bytes:
        return self._tail if usage is None else usage.tail()


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer to one request: its name, and when it was begun."""

    form: Form
    model: str
    id: str = ""
    created: int = field(default_factory=lambda: int(time.time()))

    @classmethod
    def of(cls, form: Form, model: str) -> Answer:
        return cls(form, model, form.id_prefix + uuid.uuid4().hex)

    def content(self, kind: str) -> dict[str, Any]:
        """What all of its bodies and events have."""
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def body(self, choices: Iterable[dict[str, Any]], usage: Usage) -> bytes:
        """The answer that is sent as one body."""
        content = self.content(self.form.whole)
        return orjson.dumps(content | {"choices": list(choices), "usage": usage.content()})

    def choice(self, index: int, text: str, log_probs: object, finish_reason: str) -> dict[str, Any]:
        """One of its texts."""
        message = {"role": "assistant", "content": text, "refusal": None}
        told = {"text": text} if self.form is COMPLETION else {"message": message}
        return {"index": index, **told, "logprobs": log_probs, "finish_reason": finish_reason}
