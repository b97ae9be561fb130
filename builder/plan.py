"""What a config asks for, step by step. Made only from the config: nothing is fetched or run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from builder.convert import Convert
from builder.engines.mock import MakeMock
from builder.engines.tensorrt_llm.describe import Describe
from builder.engines.tensorrt_llm.planning import commands
from builder.engines.tensorrt_llm.run import ToolStep
from builder.engines.vllm import FetchDraft, TakeModel, draft_of, loads_whole, runs_code, vllm_files
from builder.package import Package
from builder.sources.download import Download
from builder.sources.model import model_of
from builder.tokenizer.step import MakeTokenizer
from shared.config import (
    BuildConfig,
    CogTRTLLMConfig,
    CTranslate2Config,
    MockConfig,
    VLLMConfig,
    dump_config,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from builder.step import Step
    from shared.config import TensorRTLLMConfig


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of one build, in order."""

    engine: str
    steps: tuple[Step, ...]


def make_plan(config: BuildConfig | CogTRTLLMConfig, folder: Path | None = None) -> Plan:
    """The plan for `config`, whose paths start at `folder`.

    Raises ConfigCheckFailed for arguments.
    """
    wanted = model_of(config)
    more = vllm_files(config) if isinstance(config, VLLMConfig) else ()
    model = () if wanted is None else (Download(*wanted[1:], folder, more), MakeTokenizer())
    package = Package(config.engine, dump_config(config))
    return Plan(config.engine, (*model, *_ENGINES[config.engine](config, folder), package))


def _ctranslate2(config: CTranslate2Config, _folder: Path | None) -> tuple[Step, ...]:
    return (Convert(config.engine, config.quantization),)


def _mock(_config: MockConfig, _folder: Path | None) -> tuple[Step, ...]:
    return (MakeMock(),)


def _tensorrt_llm(config: TensorRTLLMConfig | CogTRTLLMConfig, _folder: Path | None) -> tuple[Step, ...]:
    return *[ToolStep(command) for command in commands(config)], Describe()


def _vllm(config: VLLMConfig, folder: Path | None) -> tuple[Step, ...]:
    draft = draft_of(config, folder)
    fetch = () if draft is None else (FetchDraft(draft),)
    gpus = config.tensor_parallel_size * config.pipeline_parallel_size
    overridden = bool(config.engine_args.get("hf_overrides"))
    take = TakeModel(gpus, runs_code(config), loads_whole(config), config.dtype, overridden)
    return *fetch, take


_ENGINES: dict[str, Callable[[Any, Path | None], tuple[Step, ...]]] = {
    "ctranslate2": _ctranslate2,
    "mock": _mock,
    "tensorrt_llm": _tensorrt_llm,
    "vllm": _vllm,
}
