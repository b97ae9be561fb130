"""What servers answer, read as it arrives: Cog's API, OpenAI's, Triton's over HTTP, Replicate's streams."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import orjson

from cli.perf.request import CUT, ENDLESS, REFUSED
from shared.sizes import readable

if TYPE_CHECKING:
    from cli.perf.request import Request

_CODE = re.compile(r"\bE[1-4]\d{3}\b", re.ASCII)
_MAX_BODY = 1 << 24
_MAX_STREAM = 1 << 26
_MAX_COUNT = 1 << 53
_MALFORMED = (KeyError, TypeError, IndexError, AttributeError)


class Answer:
    """An answer to one request: events of text/event-stream, or one JSON document.

    A subclass says what an event or a document means.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self._status = 0
        self._is_stream = False
        self._rest = b""
        self._size = 0

    def head(self, status: int, *, is_stream: bool) -> None:
        """The answer begins."""
        self._status, self._is_stream = status, is_stream and status < 300

    def body(self, data: bytes, now: float) -> None:
        """More of it, read at `now`."""
        if not self._is_stream:
            if len(self._rest) < _MAX_BODY:
                self._rest += data
            return
        self._size += len(data)
        if self._size > _MAX_STREAM:  # whoever watches over the request gives it up then
            self.request.fail(ENDLESS, f"more than {readable(_MAX_STREAM)} came")
            return
        if b"\r" in data:
            data = data.replace(b"\r", b"")
        *events, self._rest = (self._rest + data if self._rest else data).split(b"\n\n")
        for event in events:
            kind, said = b"", b""
            for line in event.split(b"\n"):
                if line.startswith(b"data:"):
                    said += (b"\n" if said else b"") + line[5:].removeprefix(b" ")
                elif line.startswith(b"event:"):
                    kind = line[6:].strip()
            if said:
                self._take(kind, said, now)

    def end(self, now: float, *, whole: bool) -> None:
        """Nothing more will come."""
        request = self.request
        request.ended = now
        if self._status >= 300:
            request.fail(*_refusal(self._status, self._rest))
        elif self._status and not self._is_stream:
            self._document(whole=whole)
        if not request.complete:
            request.fail(CUT, "the answer ended before its end was signalled")

    def _document(self, *, whole: bool) -> None:
        try:
            document = orjson.loads(self._rest)
        except orjson.JSONDecodeError:
            self.request.fail("not JSON" if whole else CUT, self._rest.decode(errors="replace"))
            return
        try:
            if not isinstance(document, dict):
                raise TypeError
            self.document(document)
        except _MALFORMED:
            self.request.fail("malformed answer", self._rest.decode(errors="replace"))

    def _take(self, kind: bytes, said: bytes, now: float) -> None:
        try:
            self.event(kind, said, now)
        except (orjson.JSONDecodeError, *_MALFORMED):
            self.request.fail("malformed event", said.decode(errors="replace"))

    def event(self, kind: bytes, said: bytes, now: float) -> None:
        """One event of a stream."""
        raise NotImplementedError

    def document(self, document: dict[str, Any]) -> None:
        """An answer that came as one document."""
        raise NotImplementedError

    def text(self, text: str, now: float) -> None:
        """More text. Raises TypeError."""
        self.piece(text)
        self.request.events.append(now)

    def piece(self, text: str) -> None:
        """A part of the text, which may be all of it. Raises TypeError."""
        if not isinstance(text, str):
            raise TypeError
        self.request.pieces.append(text)


class CogAnswer(Answer):
    """Cog's API: events `output` and `completed`, or the prediction when it has ended."""

    def event(self, kind: bytes, said: bytes, now: float) -> None:
        if kind == b"output":
            chunk = orjson.loads(said)["chunk"]
            if chunk:
                self.text(chunk, now)
        elif kind == b"completed":
            self._completed(orjson.loads(said))

    def document(self, document: dict[str, Any]) -> None:
        output = document.get("output") or ""
        self.piece(output if isinstance(output, str) else "".join(output))
        self._completed(document)

    def _completed(self, prediction: dict[str, Any]) -> None:
        request, metrics = self.request, prediction.get("metrics") or {}
        request.complete = True
        request.tokens = _count(metrics.get("output_token_count"))
        request.prompt_tokens = _count(metrics.get("input_token_count"))
        if prediction.get("status") != "succeeded":
            said = str(prediction.get("error") or prediction.get("status"))
            request.fail(prediction.get("error_code") or code_in(said) or REFUSED, said)


class OpenAIAnswer(Answer):
    """OpenAI's API: chunks of chats or completions, then `[DONE]`; or one document."""

    def event(self, _kind: bytes, said: bytes, now: float) -> None:
        if said == b"[DONE]":
            self.request.complete = True
            return
        chunk = orjson.loads(said)
        if self._is_error(chunk):
            return
        for choice in _listed(chunk["choices"]):
            delta = choice.get("delta")
            text = choice.get("text") if delta is None else _of_a_chat(delta)
            if text:
                self.text(text, now)
        if usage := chunk.get("usage"):
            self._usage(usage)

    def document(self, document: dict[str, Any]) -> None:
        if self._is_error(document):
            return
        if not _listed(document["choices"]):
            raise TypeError
        for choice in document["choices"]:
            message = choice.get("message")
            self.piece((choice.get("text") if message is None else _of_a_chat(message)) or "")
        self._usage(document.get("usage") or {})
        self.request.complete = True

    def _is_error(self, answer: dict[str, Any]) -> bool:
        if answer.get("error") is None:
            return False
        self.request.fail(*_error(answer["error"]))
        self.request.complete = True
        return True

    def _usage(self, usage: dict[str, Any]) -> None:
        self.request.tokens = _count(usage.get("completion_tokens"))
        self.request.prompt_tokens = _count(usage.get("prompt_tokens"))


class TritonAnswer(Answer):
    """Triton's generate extension: an event for each response; HTTP marks the end."""

    def event(self, _kind: bytes, said: bytes, now: float) -> None:
        self._response(orjson.loads(said), now)

    def document(self, document: dict[str, Any]) -> None:
        self._response(document, None)

    def _response(self, response: dict[str, Any], now: float | None) -> None:
        if "error" in response:
            said = str(response["error"])
            self.request.fail(code_in(said) or REFUSED, said)
            return
        text = response["text_output"]
        if text and now is not None:
            self.text(text, now)
        else:
            self.piece(text)

    def end(self, now: float, *, whole: bool) -> None:
        self.request.complete = whole
        super().end(now, whole=whole)


class ReplicateAnswer(Answer):
    """Replicate's streams: events `output` with plain text, `error`, `done`."""

    def event(self, kind: bytes, said: bytes, now: float) -> None:
        if kind == b"output":
            self.text(said.decode(errors="replace"), now)
        elif kind == b"error":
            text = said.decode(errors="replace")
            self.request.fail(code_in(text) or REFUSED, text)
        elif kind == b"done":
            self.request.complete = True
            reason = (orjson.loads(said) or {}).get("reason")
            if reason:
                self.request.fail(str(reason))


class Document(Answer):
    """Any JSON document, kept unchanged."""

    found: dict[str, Any] | None = None

    def document(self, document: dict[str, Any]) -> None:
        self.found = document
        self.request.complete = True


def _count(told: Any) -> int | None:
    """A number of tokens; None for what is none."""
    is_count = isinstance(told, int) and not isinstance(told, bool) and 0 <= told <= _MAX_COUNT
    return told if is_count else None


def _listed(choices: Any) -> list[Any]:
    """A list, and nothing else that can be iterated over. Raises TypeError."""
    if not isinstance(choices, list):
        raise TypeError
    return choices


def _of_a_chat(message: dict[str, Any]) -> str:
    """What a model thinks aloud counts: its tokens are in the usage."""
    return (message.get("reasoning_content") or "") + (message.get("content") or "")


def _refusal(status: int, body: bytes) -> tuple[str, str]:
    text = body.decode(errors="replace")
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        document = None
    if isinstance(document, dict):
        if isinstance(document.get("error"), dict):
            code, said = _error(document["error"])
            return (code if _CODE.fullmatch(code) else f"HTTP {status}"), said
        text = str(document.get("error") or document.get("detail") or text)
        if coded := document.get("error_code") or code_in(text):
            return str(coded), text
    return f"HTTP {status}", text


def _error(error: Any) -> tuple[str, str]:
    if not isinstance(error, dict):
        return REFUSED, str(error)
    said = str(error.get("message") or "")
    return str(error.get("code") or code_in(said) or error.get("type") or REFUSED), said


def code_in(text: str) -> str | None:
    """The first of our codes in a text."""
    found = _CODE.search(text)
    return found and found.group()
