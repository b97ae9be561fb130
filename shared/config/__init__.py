"""The build config: YAML in, a checked and frozen model out."""

from .load import ENGINES, dump_config, load_config
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

__all__ = [
    "ENGINES",
    "BuildConfig",
    "CTranslate2Config",
    "EngineConfig",
    "Instantiate",
    "MockConfig",
    "Server",
    "ServerArguments",
    "TensorRTLLMConfig",
    "VLLMConfig",
    "dump_config",
    "load_config",
]
