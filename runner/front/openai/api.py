"""The routes of OpenAI's API, and of what else clients probe for."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import unquote

from runner.front.http import JSON
from runner.front.keys import needs_key
from runner.front.openai.answers import CHAT, COMPLETION, Answer, event
from runner.front.openai.elsewhere import OUTSIDE, instead_of
from runner.front.openai.errors import SENT, openai_error, openai_status
from runner.front.openai.operator import OperatorApi
from runner.front.openai.texts import Texts
from runner.front.openai.wanted import Texts as WantedTexts
from runner.front.openai.wanted import chat_texts, completion_texts, tokens, words
from runner.front.statuses import status_of
from shared import VERSION
from shared.errors import CogTritonError, MethodNotAllowed, ModelNotServed, PathServedElsewhere, PathUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from runner.front.app import App
    from runner.front.bodies import Bodies
    from runner.front.engine import LoadedEngine
    from runner.front.http import Request
    from runner.front.keys import Keys
    from runner.front.openai.answers import Form
    from runner.front.openai.errors import Sent
    from runner.front.router import Handler

_MAX_SHOWN = 200  # characters of a name that was sent


class OpenAIApi:
    """`/v1/models`, `/v1/completions`, `/v1/chat/completions`, `/tokenize`, `/detokenize` and `/version`."""

    def __init__(
        self,
        engine: Callable[[], LoadedEngine],
        bodies: Bodies,
        served_name: str | None = None,
        *,
        any_model: bool = False,
        keys: Keys | None = None,
        operator_key: str | None = None,
    ) -> None:
        """`engine` raises a coded error while none accepts requests.

        `served_name`: the model's name here, instead of its own; `any_model`: any name is accepted. `keys`:
        one of them must be sent. `operator_key`: that of the operator's routes; None: there are none.
        """
        self._engine = engine
        self._bodies = bodies
        self._served_name = served_name
        self._any_model = any_model
        self._keys = keys
        self._created = int(time.time())
        self._operator = (
            None if operator_key is None else OperatorApi(engine, self._model, operator_key, bodies)
        )

    def add_to(self, app: App) -> None:
        """Add its routes."""
        for method, path, handler in (
            ("GET", "/v1/models", self._models),
            ("GET", "/v1/models/{model}", self._one_model),
            ("GET", "/v1/models/{owner}/{model}", self._one_model),
            ("POST", "/v1/completions", self._completions),
            ("POST", "/v1/chat/completions", self._chat_completions),
            ("POST", "/tokenize", self._tokenize),
            ("POST", "/detokenize", self._detokenize),
        ):
            app.router.add(method, path, _told(needs_key(handler, self._keys)))
        if self._operator is not None:
            self._operator.add_to(app, _told)
        app.router.add("GET", "/version", _version)
        for folder in ("/v1", "/tokenize", "/detokenize", *OUTSIDE):
            app.router.refuse(folder, _refuse, _fail)

    async def _models(self, request: Request) -> None:
        adapters = self._engine().predictor.adapters.names
        described = [self._description(), *map(self._described, adapters)]
        await request.respond_json(200, {"object": "list", "data": described})

    async def _one_model(self, request: Request) -> None:
        name = unquote("/".join(request.variables.values()))
        adapter = self._checked(name)
        await request.respond_json(200, self._description() if adapter is None else self._described(adapter))

    def _model(self) -> str:
        return self._served_name or self._engine().model

    def _description(self) -> dict[str, object]:
        return {
            "id": self._model(),
            "object": "model",
            "created": self._created,
            "owned_by": "cog-triton",
            "root": self._engine().model,
            "max_model_len": self._engine().predictor.preparation.limits.sequence,
        }

    def _described(self, adapter: str) -> dict[str, object]:
        root = self._engine().predictor.adapters.place(adapter)
        return self._description() | {"id": adapter, "root": root, "parent": self._model()}

    async def _completions(self, request: Request) -> None:
        await self._answer(request, COMPLETION, await self._bodies.read(request, completion_texts))

    async def _chat_completions(self, request: Request) -> None:
        await self._answer(request, CHAT, await self._bodies.read(request, chat_texts))

    async def _answer(self, request: Request, form: Form, wanted: WantedTexts) -> None:
        try:
            await self._send(request, form, wanted)
        except CogTritonError as error:
            await _fail(request, error, wanted.sent)

    async def _send(self, request: Request, form: Form, wanted: WantedTexts) -> None:
        adapter, asks = self._checked(wanted.model), wanted.asks
        if wanted.problem is not None:
            raise wanted.problem()
        if adapter is not None:
            asks = [replace(ask, lora=adapter) for ask in asks]
        answer = Answer.of(form, adapter or self._model())
        predictor = self._engine().predictor
        predictor.admission.check(len(asks), request.key)
        texts = Texts(predictor, answer, asks, wanted.per_prompt, request)
        with request.while_connected():
            if wanted.stream:
                await texts.stream(include_usage=wanted.usage, in_each=wanted.usage_in_each)
            else:
                await request.respond(200, await texts.whole(), JSON)

    async def _tokenize(self, request: Request) -> None:
        wanted = await self._bodies.read(request, tokens)
        self._checked(wanted.model)
        predictor = self._engine().predictor
        with request.while_connected():
            text = await predictor.text_of(wanted.ask, request.sender)
            found = await predictor.tokens_of(text, request.sender, templated=wanted.plain)
        content = {
            "count": len(found),
            "max_model_len": predictor.preparation.limits.sequence,
            "tokens": found,
        }
        await request.respond_json(200, content)

    async def _detokenize(self, request: Request) -> None:
        wanted = await self._bodies.read(request, words)
        self._checked(wanted.model)
        with request.while_connected():
            text = await self._engine().predictor.words_of(wanted.tokens, request.sender)
        await request.respond_json(200, {"prompt": text})

    def _checked(self, name: str | None) -> str | None:
        """The adapter of this name; None if it is the model's own. Raises ModelNotServed when it is
        neither.
        """
        served = self._model()
        if name is None or name == served:
            return None
        if name in self._engine().predictor.adapters:
            return name
        if not self._any_model:
            raise ModelNotServed(model=name[:_MAX_SHOWN], served=served)
        return None


def _told(handler: Handler) -> Handler:
    """`handler`, with errors in OpenAI's form."""

    async def handle(request: Request) -> None:
        try:
            await handler(request)
        except CogTritonError as error:
            await _fail(request, error)

    return handle


async def _version(request: Request) -> None:
    await request.respond_json(200, {"version": VERSION})


async def _refuse(request: Request, methods: Sequence[str]) -> None:
    path = request.path[:_MAX_SHOWN]
    if methods:
        error: CogTritonError = MethodNotAllowed(
            path=path, method=request.method, allowed=" or ".join(methods)
        )
    elif (instead := instead_of(path)) is not None:
        error = PathServedElsewhere(path=path, instead=instead)
    else:
        error = PathUnknown(path=path)
    await _fail(request, error)


async def _fail(request: Request, error: CogTritonError, sent: Mapping[str, Sent] = SENT) -> None:
    status = openai_status(status_of(error))
    content = openai_error(error, status, sent)
    if request.started:
        request.count(error)
        await request.send(event(content))
        await request.end()
    else:
        await request.respond_error(error, status, content)
