"""The build config: YAML in, a checked and frozen model out."""

from .load import ENGINES, AnyConfig, dump_config, load_config, load_instantiate
from .models import (
    BuildConfig,
    CTranslate2Config,
    EngineConfig,
    Instantiate,
    MockConfig,
    Server,
    ServerArguments,
    TensorRTLLMConfig,
    VLLMConfig,
)
from .old import CogTRTLLMConfig, OfficialConfig

__all__ = [
    "ENGINES",
    "AnyConfig",
    "BuildConfig",
    "CTranslate2Config",
    "CogTRTLLMConfig",
    "EngineConfig",
    "Instantiate",
    "MockConfig",
    "OfficialConfig",
    "Server",
    "ServerArguments",
    "TensorRTLLMConfig",
    "VLLMConfig",
    "dump_config",
    "load_config",
    "load_instantiate",
]
