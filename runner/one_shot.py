"""An engine for the calling process, without a server: loaded, asked, and ended."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from runner.front.engine import LoadedEngine, connect_to
from runner.lifecycle.caller import start_supervisor
from runner.lifecycle.control import Connection, EngineAddress, Ready, SetupFailed
from runner.metrics import Metrics
from runner.prediction.admission import Admission
from runner.settings import Settings
from shared.errors import TritonFailedToStart, from_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from runner.lifecycle.control import Message
    from runner.prediction.predictor import Predictor
    from runner.triton.client import EngineClient
    from shared.errors import CogTritonError


@asynccontextmanager
async def loaded(weights: str) -> AsyncIterator[Predictor]:
    """The engine of a value of COG_WEIGHTS, with the environment's settings, until the context ends.

    Raises what the set-up of a runner raises.
    """
    environment = {**os.environ, "COG_WEIGHTS": weights}
    settings = Settings.from_environment(environment)
    process, near = start_supervisor(environment)
    control = Connection(*await asyncio.open_connection(sock=near))
    client = engine = None
    try:
        messages = aiter(control)
        address = await anext(messages, None)
        if not isinstance(address, EngineAddress):
            raise _failure(address)
        client = await connect_to(address, settings)
        loading = asyncio.create_task(_load(address, client, settings))
        failing = asyncio.ensure_future(anext(messages, None))
        await asyncio.wait({loading, failing}, return_when=asyncio.FIRST_COMPLETED)
        if not loading.done():
            loading.cancel()
            raise _failure(failing.result())
        failing.cancel()
        engine = loading.result()
        control.send(Ready())
        yield engine.predictor
    finally:
        if engine is not None:
            await engine.close()
        elif client is not None:
            await client.close()
        control.close()
        await asyncio.to_thread(process.wait)


async def _load(address: EngineAddress, client: EngineClient, settings: Settings) -> LoadedEngine:
    async def connected() -> EngineClient:
        return client

    admission = Admission(1)
    metrics = Metrics(admission, lambda: client)
    return await LoadedEngine.load(Path(address.engine_dir), connected, admission, metrics, settings)


def _failure(message: Message | None) -> CogTritonError:
    """Why there is no engine."""
    if isinstance(message, SetupFailed):
        return from_text(message.error) or TritonFailedToStart(reason=message.error)
    return TritonFailedToStart(reason="its supervisor ended")
