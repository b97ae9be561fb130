"""What is wrong with the arguments of Triton's model `tensorrt_llm`: what a runner's start would find."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.config import CogTRTLLMConfig, OfficialConfig, TensorRTLLMConfig
from shared.errors import ConfigKeyUnknown
from shared.server_arguments import read_parameters

if TYPE_CHECKING:
    from builder.findings import Findings
    from shared.config import AnyConfig

_PLACE = ("instantiate", "server", "tensorrt_llm", "args")


def check_server(config: AnyConfig, findings: Findings) -> None:
    """Report values with which a start fails, and names that it ignores; other engines look at neither."""
    if not isinstance(config, CogTRTLLMConfig | OfficialConfig | TensorRTLLMConfig):
        return
    server = config.instantiate and config.instantiate.server
    if not server or not server.tensorrt_llm:
        return
    found = read_parameters(server.tensorrt_llm.args)
    for name, error in found.invalid.items():
        findings.error((*_PLACE, name), error)
    for name, nearest in found.unknown.items():
        instead = nearest or "one of those in docs/tensorrt_llm.md"
        findings.warn((*_PLACE, name), ConfigKeyUnknown(key=name, instead=instead))
