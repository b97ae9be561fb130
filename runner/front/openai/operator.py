"""The operator's routes: LoRA adapters are loaded and removed while the runner serves, as with vLLM."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pydantic import Field

from runner.front.keys import Keys, needs_key
from runner.front.openai.parameters import Part
from runner.front.openai.reading import read

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.front.app import App
    from runner.front.bodies import Bodies
    from runner.front.engine import LoadedEngine
    from runner.front.http import Request
    from runner.front.router import Handler


class Load(Part):
    """The body of `/v1/load_lora_adapter`."""

    lora_name: str = Field(min_length=1, max_length=200)
    lora_path: str = Field(min_length=1, max_length=4000)


class Unload(Part):
    """The body of `/v1/unload_lora_adapter`."""

    lora_name: str
    lora_int_id: int | None = None  # vLLM accepts it, and ignores it


class OperatorApi:
    """`/v1/load_lora_adapter` and `/v1/unload_lora_adapter`."""

    def __init__(
        self, engine: Callable[[], LoadedEngine], served: Callable[[], str], key: str, bodies: Bodies
    ) -> None:
        """`served`: the name of the model itself, which no adapter can have. `key` must be sent."""
        self._engine = engine
        self._served = served
        self._bodies = bodies
        self._keys = Keys.of_operator(key)

    def add_to(self, app: App, guarded: Callable[[Handler], Handler]) -> None:
        """Add its routes; `guarded` reports errors."""
        for path, handler in (
            ("/v1/load_lora_adapter", self._load),
            ("/v1/unload_lora_adapter", self._unload),
        ):
            app.router.add("POST", path, guarded(needs_key(handler, self._keys)))

    async def _load(self, request: Request) -> None:
        asked = await self._bodies.read(request, partial(read, Load), place=False)
        predictor = self._engine().predictor
        place = predictor.adapters.found(asked.lora_path)
        predictor.adapters.check_name(asked.lora_name, place, self._served())
        await predictor.try_adapter(asked.lora_name, place)
        predictor.adapters.add(asked.lora_name, place)
        await request.respond_json(200, {"lora_name": asked.lora_name, "lora_path": place})

    async def _unload(self, request: Request) -> None:
        asked = await self._bodies.read(request, partial(read, Unload), place=False)
        self._engine().predictor.adapters.remove(asked.lora_name)
        await request.respond_json(200, {"lora_name": asked.lora_name})
