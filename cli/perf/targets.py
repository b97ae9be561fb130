"""How each kind of server is asked: what is sent, and as which kind of answer the reply is read."""

from __future__ import annotations

import base64
import json
import os
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol
from urllib.parse import unquote, urlunsplit

from cli.perf.address import parsed
from cli.perf.answers import Answer, CogAnswer, Document, OpenAIAnswer, ReplicateAnswer, TritonAnswer
from cli.perf.http import Connections, Message, why
from cli.perf.request import NOT_CONNECTED, Request
from shared.errors import ServerNotMeasured
from shared.secrets import public_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from urllib.parse import SplitResult

    from cli.perf.http import Connection

TargetName = Literal["cog-triton", "openai", "triton", "mock", "replicate"]
_EVENTS = "text/event-stream"


@dataclass(frozen=True)
class Ask:
    """What every request of a load asks for."""

    output_tokens: int
    stream: bool = True
    exact: bool = True
    """Whether the server must make exactly that many tokens, not at most."""
    tokens_per_second: float | None = None
    """Set on a mock."""


class Target(Protocol):
    """A server that can be asked."""

    name: str
    """Its name in the report."""
    ask: Ask

    async def send(self, request: Request, prompt: str) -> None:
        """Ask, and wait for the end; failures are recorded in the request."""

    def give_up(self, request: Request) -> None:
        """End a request in progress."""

    async def close(self) -> None:
        """Leave no connection open."""


@dataclass
class HttpTarget:
    """Asked by one POST."""

    name: str
    url: SplitResult
    ask: Ask
    message: Callable[[str, Ask], Message]
    answer: type[Answer]
    headers: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._connections = Connections(self.url)
        self._under_way: dict[Request, Connection] = {}

    async def send(self, request: Request, prompt: str) -> None:
        """One request on a connection of its own."""
        await self.exchange(self._message(prompt), self.answer(request))

    def _message(self, prompt: str) -> Message:
        message = self.message(prompt, self.ask)
        return replace(message, path=_with_query(message.path, self.url))

    async def exchange(self, message: Message, answer: Answer) -> None:
        """Send a message and take the answer. A kept connection that the server has closed is replaced."""
        request = answer.request
        message = replace(message, headers={**message.headers, **self.headers})
        data = message.encoded(self._connections.authority)
        while True:
            try:
                connection, is_new = await self._connections.get()
            except OSError as error:
                request.fail(NOT_CONNECTED, why(error))
                return
            self._under_way[request] = connection
            probe = answer if is_new else _Again(answer)
            await connection.ask(data, probe)
            del self._under_way[request]
            self._connections.give_back(connection)
            if not (isinstance(probe, _Again) and probe.closed_before):
                return

    def give_up(self, request: Request) -> None:
        """End the request's connection."""
        request.fail("given up")
        if connection := self._under_way.get(request):
            connection.close()

    async def close(self) -> None:
        """End the free connections; no request is in progress any more."""
        self._connections.close()


class _Again:
    """An answer over a kept connection: the server may have ended it while it was free."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._begun = False
        self.closed_before = False

    def head(self, status: int, *, is_stream: bool) -> None:
        self._begun = True
        self._answer.head(status, is_stream=is_stream)

    def body(self, data: bytes, now: float) -> None:
        self._answer.body(data, now)

    def end(self, now: float, *, whole: bool) -> None:
        given_up = self._answer.request.failure is not None
        self.closed_before = not (self._begun or whole or given_up)
        if not self.closed_before:
            self._answer.end(now, whole=whole)


@dataclass
class ReplicateTarget(HttpTarget):
    """Asked twice: for a prediction, and for the events at the address that comes back."""

    async def send(self, request: Request, prompt: str) -> None:
        """The events' connection may lead to another host."""
        first = Document(Request(request.number, request.intended))
        self._begun[request] = first.request
        await self.exchange(self._message(prompt), first)
        del self._begun[request]
        if first.found is None or first.request.failure:
            request.ended = first.request.ended
            request.fail(first.request.failure or "not JSON", first.request.said)
            return
        urls = first.found.get("urls") or {}
        if isinstance(urls, dict) and not urls.get("stream"):
            request.fail("no stream", "Replicate gives no address to stream from: the model does not stream")
            return
        address = _stream_of(urls)
        if address is None:
            request.fail("malformed answer", "the address to stream from is not a URL")
            return
        origin = _origin(address)
        target = self._streams.get(origin)
        if target is None:
            # The key goes only to the host that it is for; streams on other hosts have signed addresses.
            key = self.headers if origin == _origin(self.url) else {}
            target = HttpTarget(self.name, address, self.ask, self.message, ReplicateAnswer, key)
            self._streams[origin] = target
        path = _with_query(address.path or "/", address)
        await target.exchange(Message("GET", path, b"", {"Accept": _EVENTS}), ReplicateAnswer(request))

    def __post_init__(self) -> None:
        super().__post_init__()
        self._begun: dict[Request, Request] = {}
        self._streams: dict[tuple[str, str | None, int | None], HttpTarget] = {}

    def give_up(self, request: Request) -> None:
        """End it in whichever half it is."""
        if first := self._begun.get(request):
            super().give_up(first)
        for target in self._streams.values():
            target.give_up(request)

    async def close(self) -> None:
        """End the connections to both hosts."""
        await super().close()
        for target in self._streams.values():
            await target.close()


def _stream_of(urls: Any) -> SplitResult | None:
    """The address, if it is one that can be asked."""
    given = urls.get("stream") if isinstance(urls, dict) else None
    if not isinstance(given, str) or not given.startswith(("http://", "https://")):
        return None
    try:
        return parsed(given)
    except ServerNotMeasured:
        return None


def _origin(url: SplitResult) -> tuple[str, str | None, int | None]:
    return url.scheme, url.hostname, url.port or {"http": 80, "https": 443}.get(url.scheme)


def _with_query(path: str, url: SplitResult) -> str:
    return f"{path}?{url.query}" if url.query else path


def _json(path: str, content: dict[str, Any], **headers: str) -> Message:
    return Message(
        "POST", path, json.dumps(content).encode(), {"Content-Type": "application/json", **headers}
    )


def _cog(path: str) -> Callable[[str, Ask], Message]:
    def message(prompt: str, ask: Ask) -> Message:
        inputs: dict[str, Any] = {"prompt": prompt, "max_tokens": ask.output_tokens}
        if ask.exact:
            inputs["min_tokens"] = ask.output_tokens
        return _json(path, {"input": inputs}, Accept=_EVENTS if ask.stream else "application/json")

    return message


def _mock(path: str) -> Callable[[str, Ask], Message]:
    plain = _cog(path)

    def message(prompt: str, ask: Ask) -> Message:
        if ask.tokens_per_second is not None:
            prompt = f"<tokens_per_second> {ask.tokens_per_second:.0f} {prompt}"
        return plain(prompt, replace(ask, exact=False))  # it makes that many in any case

    return message


def _openai(path: str, model: str) -> Callable[[str, Ask], Message]:
    def message(prompt: str, ask: Ask) -> Message:
        said: dict[str, Any] = {"model": model, "max_tokens": ask.output_tokens, "stream": ask.stream}
        if path.endswith("/chat/completions"):
            said["messages"] = [{"role": "user", "content": prompt}]
        else:
            said["prompt"] = prompt
        if ask.exact:
            said["ignore_eos"] = True
        if ask.stream:
            said["stream_options"] = {"include_usage": True}
        return _json(path, said)

    return message


def _triton(path: str) -> Callable[[str, Ask], Message]:
    def message(prompt: str, ask: Ask) -> Message:
        said: dict[str, Any] = {
            "text_input": prompt,
            "max_tokens": ask.output_tokens,
            "stream": ask.stream,
            "bad_words": "",
            "stop_words": "",
        }
        if ask.exact:
            said["min_tokens"] = ask.output_tokens
        return _json(path, said)

    return message


def _replicate(path: str, model: str) -> Callable[[str, Ask], Message]:
    def message(prompt: str, ask: Ask) -> Message:
        inputs = {"prompt": prompt, "max_tokens": ask.output_tokens}
        inputs |= {"min_tokens": ask.output_tokens} if ask.exact else {}
        return _json(path, {"version": model, "input": inputs, "stream": True})

    return message


def candidates(name: TargetName, url: SplitResult, model: str | None, ask: Ask) -> Iterator[Target]:
    """The ways to ask a server of this kind, best first: a request shows which one it accepts.

    Raises ServerNotMeasured for a key that cannot be sent, and for whole answers of Replicate's.
    """
    path = url.path.rstrip("/")
    if name == "triton" and url.scheme == "grpc":
        from cli.perf.triton_grpc import GrpcTarget

        for exact in (ask, replace(ask, exact=False)):
            yield GrpcTarget(url.netloc, triton_model(url, model), exact)
        return
    for exact in (ask, replace(ask, exact=False)):
        match name:
            case "cog-triton":
                yield HttpTarget(
                    "Cog's API", url, exact, _cog(path or "/predictions"), CogAnswer, key_headers(url)
                )
            case "mock":
                yield HttpTarget(
                    "the mock", url, exact, _mock(path or "/predictions"), CogAnswer, key_headers(url)
                )
                return
            case "openai":
                paths = [path] if path.endswith("/completions") else []
                root = path if path.endswith("/v1") else f"{path}/v1"
                for one in paths or [f"{root}/chat/completions", f"{root}/completions"]:
                    api = f"OpenAI's API ({'chats' if '/chat/' in one else 'completions'})"
                    yield HttpTarget(
                        api, url, exact, _openai(one, model or ""), OpenAIAnswer, key_headers(url)
                    )
            case "triton":
                served = path or f"/v2/models/{triton_model(url, model)}"
                verb = "generate_stream" if exact.stream else "generate"
                whole = served if "/generate" in served else f"{served}/{verb}"
                yield HttpTarget("Triton's HTTP", url, exact, _triton(whole), TritonAnswer, key_headers(url))
            case "replicate":
                if not exact.stream:
                    reason = "Replicate's API is measured by its events alone; omit `--output_method wait`"
                    raise ServerNotMeasured(url=public_address(urlunsplit(url)), reason=reason)
                key = server_key(name, url)
                place = path or "/v1/predictions"
                yield ReplicateTarget(
                    "Replicate", url, exact, _replicate(place, model or ""), ReplicateAnswer, key
                )


def triton_model(url: SplitResult, model: str | None) -> str:
    """The model that a Triton is asked for: that of the address, else the one that is named."""
    named = re.match(r"/v2/models/([^/]+)", url.path)
    return named[1] if named else model or "ensemble"


def server_key(name: TargetName, url: SplitResult) -> dict[str, str]:
    """The key that a server of this kind is sent. Raises ServerNotMeasured."""
    return key_headers(url, "REPLICATE_API_TOKEN" if name == "replicate" else "OPENAI_API_KEY")


def key_headers(url: SplitResult, variable: str = "OPENAI_API_KEY") -> dict[str, str]:
    """The key in a variable, else the address's own user, for servers that need one. Raises
    ServerNotMeasured.
    """
    key = os.environ.get(variable)
    if not key:
        return _user_headers(url)
    # A header cannot hold it otherwise, and who sends it would quote it.
    if not (key.isascii() and key.isprintable()) or key != key.strip():
        reason = (
            f"the key in {variable} has characters that no key has, such as a space or line end behind it"
        )
        raise ServerNotMeasured(url=public_address(urlunsplit(url)), reason=reason)
    return {"Authorization": f"Bearer {key}"}


def _user_headers(url: SplitResult) -> dict[str, str]:
    """`user:password@` as HTTP sends it."""
    if "@" not in url.netloc:
        return {}
    user = f"{unquote(url.username or '')}:{unquote(url.password or '')}"
    return {"Authorization": f"Basic {base64.b64encode(user.encode(errors='replace')).decode()}"}
