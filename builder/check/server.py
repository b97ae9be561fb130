"""Faults in the arguments of Triton's model `tensorrt_llm`: what a runner's start would find."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.errors import ConfigKeyUnknown
from shared.server_arguments import CHUNKED, DECOUPLED, read_parameters

if TYPE_CHECKING:
    from builder.findings import Findings
    from shared.config import Instantiate

_PLACE = ("instantiate", "server", "tensorrt_llm", "args")


def check_server(section: Instantiate | None, findings: Findings, *, only_decoupled: bool) -> None:
    """Report values that would make a start fail, and names that it ignores.

    `only_decoupled`: the engine reads no other argument.
    """
    server = section and section.server
    if not server or not server.tensorrt_llm:
        return
    arguments = server.tensorrt_llm.args
    if only_decoupled:
        arguments = {name: value for name, value in arguments.items() if name == DECOUPLED}
    found = read_parameters(arguments)
    for name, error in found.invalid.items():
        findings.error((*_PLACE, name), error)
    for name, nearest in found.unknown.items():
        instead = nearest or "one of those in docs/tensorrt_llm.md"
        findings.warn((*_PLACE, name), ConfigKeyUnknown(key=name, instead=instead))


def chunks_prompts(section: Instantiate | None) -> bool:
    """Whether the executor reads a prompt in several steps, so that one may have more than max_num_tokens."""
    server = section and section.server
    if not server or not server.tensorrt_llm:
        return False
    return bool(read_parameters(server.tensorrt_llm.args).values.get(CHUNKED))
