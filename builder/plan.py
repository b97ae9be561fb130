"""What a config asks for, step by step. Made from the config alone: nothing is fetched or run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from builder.convert import Convert
from builder.engines.mock import MakeMock
from builder.engines.tensorrt_llm.describe import Describe
from builder.engines.tensorrt_llm.planning import commands
from builder.engines.tensorrt_llm.run import ToolStep
from builder.package import Package
from builder.sources.download import Download
from builder.sources.model import model_of
from builder.tokenizer.step import MakeTokenizer
from shared.config import BuildConfig, CogTRTLLMConfig, CTranslate2Config, MockConfig, dump_config
from shared.errors import EngineNotInImage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from builder.step import Step
    from shared.config import TensorRTLLMConfig


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of one build, in their order."""

    engine: str
    steps: tuple[Step, ...]


def make_plan(config: BuildConfig | CogTRTLLMConfig, folder: Path | None = None) -> Plan:
    """The plan for `config`, whose paths count from `folder`.

    Raises E3005 for an engine that nothing builds, E3010 for arguments.
    """
    steps_for = _ENGINES.get(config.engine)
    if steps_for is None:
        raise EngineNotInImage(engine=config.engine, available=", ".join(_ENGINES))
    wanted = model_of(config)
    model = () if wanted is None else (Download(*wanted[1:], folder), MakeTokenizer())
    package = Package(config.engine, dump_config(config))
    return Plan(config.engine, (*model, *steps_for(config), package))


def _ctranslate2(config: CTranslate2Config) -> tuple[Step, ...]:
    return (Convert(config.engine, config.quantization),)


def _mock(_config: MockConfig) -> tuple[Step, ...]:
    return (MakeMock(),)


def _tensorrt_llm(config: TensorRTLLMConfig | CogTRTLLMConfig) -> tuple[Step, ...]:
    return *[ToolStep(command) for command in commands(config)], Describe()


_ENGINES: dict[str, Callable[[Any], tuple[Step, ...]]] = {
    "ctranslate2": _ctranslate2,
    "mock": _mock,
    "tensorrt_llm": _tensorrt_llm,
}
