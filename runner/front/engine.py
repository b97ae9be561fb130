"""The loaded engine, as the front knows it: from its address to a `Predictor`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from runner.lifecycle.control import Ready, SetupFailed
from runner.lifecycle.engine_probe import EngineProbe
from runner.prediction.adapters import Adapters
from runner.prediction.inputs import Defaults
from runner.prediction.limits import lowered
from runner.prediction.predictor import Predictor
from runner.prediction.preparation import Preparation
from runner.protocol.engine import Request, SamplingParameters
from runner.protocol.feed import EngineState
from runner.text.renderer import ChatRenderer
from runner.text.tokenizer import Tokenizer
from runner.triton.client import EngineClient
from shared.artifact import EngineDirectory
from shared.errors import (
    CogTritonError,
    EngineNotReady,
    GenericError,
    SettingInvalid,
    TritonTimeout,
)
from shared.logs import get_logger
from shared.unreadable import reason_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from runner.lifecycle.control import Connection, EngineAddress
    from runner.metrics import Metrics
    from runner.prediction.admission import Admission
    from runner.settings import Settings

log = get_logger()


async def connect_to(address: EngineAddress, settings: Settings) -> EngineClient:
    """A client that starts connecting to the engine there."""
    return await EngineClient.connect(
        Path(address.feed_path), promised=address.promised, response_timeout=settings.response_timeout
    )


async def tell_supervisor(control: Connection, loading: Awaitable[object]) -> str | None:
    """Load, and report the result; return the coded error of a failed load, else None."""
    try:
        await loading
    except CogTritonError as error:
        failed = str(error)
    except Exception:
        log.exception("the engine cannot be used")
        failed = str(GenericError())
    else:
        control.send(Ready())
        return None
    control.send(SetupFailed(failed))
    return failed


def _adapters(settings: Settings, engine: EngineDirectory) -> Adapters:
    """The operator's adapters, or else the engine's own. Raises SettingInvalid."""
    folder = settings.lora_folder or engine.adapters
    try:
        if settings.lora_folder is not None and not settings.lora_folder.is_dir():
            raise SettingInvalid(setting="LORA_FOLDER", value=str(folder), reason="there is no such folder")
        return Adapters(folder)
    except OSError as problem:
        raise SettingInvalid(setting="LORA_FOLDER", value=str(folder), reason=reason_of(problem)) from None


class LoadedEngine:
    """One engine that generates. `close` it."""

    def __init__(
        self,
        client: EngineClient,
        predictor: Predictor,
        probe: EngineProbe,
        chat: ChatRenderer | None,
        model: str,
    ) -> None:
        self.predictor = predictor
        self.model = model
        """The model's name, unless a setting says otherwise."""
        self._client = client
        self._probe = probe
        self._chat = chat
        self._watching = asyncio.create_task(probe.watch())

    @classmethod
    async def load(
        cls,
        directory: Path,
        connect: Callable[[], Awaitable[EngineClient]],
        admission: Admission,
        metrics: Metrics,
        settings: Settings,
    ) -> LoadedEngine:
        """Return when the engine has generated a token. Raises TritonTokenizerError, EngineGaveUp,
        EngineInternalError and SettingInvalid.

        `connect`: as EngineClient.connect.
        """
        engine = EngineDirectory(directory)
        # All at the same time; the process of the chat template first, since it takes longest.
        chat, tokenizer, client = await asyncio.gather(
            ChatRenderer.load(engine.tokenizer_files),
            asyncio.to_thread(Tokenizer.load, engine.tokenizer_files),
            connect(),
        )

        async def one_token() -> None:
            request = Request(0, tokenizer.some(), 1, sampling=SamplingParameters(top_k=1))
            generation = client.generate(request)
            try:
                async with asyncio.timeout(settings.probe_timeout):
                    async for _ in generation:
                        pass
            except TimeoutError:
                raise TritonTimeout(seconds=settings.probe_timeout) from None
            finally:
                generation.cancel()

        probe = EngineProbe(one_token, lambda: client.output_count)
        await client.wait_ready()
        await probe.first()
        declaration = client.declaration
        if declaration is None:
            raise EngineNotReady
        preparation = Preparation(
            tokenizer,
            Defaults.of(
                settings,
                settings.instantiate(engine.config),
                tokenizer,
                random_seed=declaration.seeds,
            ),
            lowered(declaration.limits, settings.max_sequence_length),
            takes_salts="cache_salt" in declaration.honours,
            salts_keys=not settings.share_prefix_cache,
        )
        adapters = _adapters(settings, engine) if "lora" in declaration.honours else Adapters(None)
        predictor = Predictor(preparation, client, admission, metrics, settings, chat, adapters)
        model = "model" if engine.manifest is None else engine.manifest.model
        return cls(client, predictor, probe, chat, model)

    @property
    def has_chat_template(self) -> bool:
        """Whether the model came with a chat template."""
        return self._chat is not None

    def generates(self) -> bool:
        """Whether it generates, as far as is known."""
        return self._client.state is EngineState.READY and self._probe.is_alive

    def check(self) -> None:
        """Raise EngineNotReady while it cannot accept a request."""
        if self._client.state is not EngineState.READY:
            raise EngineNotReady

    async def close(self) -> None:
        """End what it holds; the engine itself keeps running."""
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        self.predictor.close()
        if self._chat is not None:
            await self._chat.close()
        await self._client.close()
