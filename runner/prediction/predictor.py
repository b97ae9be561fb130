"""From an ask to a stream of text: the base of both APIs, and of the predictor under Cog's own server."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import TYPE_CHECKING

from runner.prediction.adapters import Adapters, by_name
from runner.prediction.generation import TextGeneration
from runner.prediction.tokenising import Tokenising
from runner.protocol.engine import Request, SamplingParameters
from runner.triton.generation import Generation
from shared.errors import ChatTemplateMissing, CogTritonError, GenericError
from shared.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from runner.metrics import Metrics
    from runner.prediction.admission import Admission, Ticket, Together
    from runner.prediction.ask import Ask
    from runner.prediction.preparation import Preparation, Prepared
    from runner.settings import Settings
    from runner.text.renderer import ChatRenderer
    from runner.triton.client import EngineClient

log = get_logger()

_LONGEST = 1 << 20  # tokens of a text, where the engine takes no more


class Predictor:
    """Turns asks into one engine's text. For one event loop."""

    def __init__(
        self,
        preparation: Preparation,
        client: EngineClient,
        admission: Admission,
        metrics: Metrics,
        settings: Settings,
        chat: ChatRenderer | None = None,
        adapters: Adapters | None = None,
    ) -> None:
        """`chat` renders the model's chat template; None: it has none."""
        self.adapters = adapters or Adapters(None)
        self.preparation = preparation
        self.admission = admission
        self._client = client
        self._metrics = metrics
        self._settings = settings
        self._chat = chat
        self._request_ids = itertools.count(1)
        self._tokenising = Tokenising(preparation.tokenizer, max(_LONGEST, preparation.limits.prompt))

    async def start(
        self,
        ask: Ask,
        *,
        key: str = "",
        sender: str = "",
        prediction_id: str = "",
        prompt: Callable[[], Awaitable[Sequence[int]]] | None = None,
        together: Together | None = None,
        place: Ticket | None = None,
    ) -> TextGeneration:
        """Check, prepare and send it. Iterate the result to its end, or `close` it.

        `key`: the identity of the API key's holder; `sender`: who shares the preparation of prompts fairly
        with others; `prompt` gives what `prompt_of` does, if other texts need it, too; `together`: all texts
        of the request; `place`: the one that it has already.

        Raises KeyLimitReached, LimitTooLow, Overloaded and ShuttingDown when it is not let in; the errors of
        prompts (E1001 to E1007), InvalidArgument and TritonTokenizerError for what was asked.
        What the engine itself refuses is raised by the iteration.
        """
        received_at = time.perf_counter()
        try:
            ticket = place or await self.admission.enter(key)
        except CogTritonError as error:
            self._metrics.ended("refused", error)
            raise
        try:
            prepared = await self._prepare(ask, prediction_id, key, sender, prompt)
            ticket.hold(len(prepared.request.input_token_ids) + prepared.request.max_tokens, together)
            return TextGeneration(
                prepared,
                self._generate(prepared.request),
                self.preparation.tokenizer,
                ticket,
                self._metrics,
                prediction_id,
                received_at,
                log_performance=ask.log_performance or self._settings.log_performance_metrics,
            )
        except BaseException as error:
            ticket.leave()
            raise self._failed(error, prediction_id) from None

    def _generate(self, request: Request) -> Generation:
        if request.max_tokens == 0:
            return Generation.of_no_tokens(asyncio.get_running_loop().time())
        return self._client.generate(request)

    def close(self) -> None:
        """Release what it holds."""
        self._tokenising.close()

    async def try_adapter(self, name: str, place: str) -> None:
        """Have the engine load it. Raises what the engine says."""
        request = Request(
            0, self.preparation.tokenizer.some(), 1, sampling=SamplingParameters(top_k=1), lora=place
        )
        generation = self._client.generate(request)
        try:
            async for _ in generation:
                pass
        except CogTritonError as error:
            raise by_name(error, name) from None
        finally:
            generation.cancel()

    async def prompt_of(self, ask: Ask, prediction_id: str, sender: str = "") -> Sequence[int]:
        """The tokens of its prompt. Raises the errors of prompts (E1001 to E1007), PreparationTimedOut and
        TritonTokenizerError.
        """
        if ask.prompt is not None and not isinstance(ask.prompt, str):
            return ask.prompt
        text = await self.text_of(ask, sender)
        if self._settings.log_prompts:
            log.info("prompt", prompt=text, prediction_id=prediction_id)
        return await self.tokens_of(text, sender, templated=ask.conversation is not None)

    async def _prepare(
        self,
        ask: Ask,
        prediction_id: str,
        key: str,
        sender: str,
        prompt: Callable[[], Awaitable[Sequence[int]]] | None,
    ) -> Prepared:
        lora = None if ask.lora is None else self.adapters.place(ask.lora)
        tokens = await (self.prompt_of(ask, prediction_id, sender) if prompt is None else prompt())
        return self.preparation.request(ask, tokens, next(self._request_ids), lora=lora, key=key)

    async def text_of(self, ask: Ask, sender: str = "") -> str:
        """The prompt that the engine will read, as text. Raises the errors of prompts (E1001 to E1007)."""
        if ask.conversation is None:
            return self.preparation.prompt(ask)
        conversation = self.preparation.conversation(ask)
        if self._chat is None:
            raise ChatTemplateMissing
        return await self._chat.render(conversation.json, ask.template_arguments, sender)

    async def tokens_of(self, text: str, sender: str = "", *, templated: bool = False) -> list[int]:
        """The tokens of a text; one `templated` by the model's own chat template has its special ones.

        Raises Overloaded, PreparationTimedOut, PromptTooLong and TritonTokenizerError.
        """
        return await self._tokenising.tokens_of(text, sender, add_special_tokens=not templated)

    async def words_of(self, tokens: Sequence[int], sender: str = "") -> str:
        """The text of these tokens, without special ones. Raises PreparationTimedOut and Overloaded."""
        return await self._tokenising.text_of(tokens, sender)

    def _failed(self, error: BaseException, prediction_id: str) -> BaseException:
        """The error to report; it is counted and logged."""
        if isinstance(error, asyncio.CancelledError):
            self._metrics.ended("cancelled")
            return error
        if not isinstance(error, CogTritonError):
            log.error("prediction failed", exc_info=error, prediction_id=prediction_id)
            error = GenericError()
        else:
            log.info("prediction failed", error=error.for_log(), prediction_id=prediction_id)
        self._metrics.ended("failed", error)
        return error
