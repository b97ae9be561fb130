"""What the build, or for vLLM the GPU, needs: from the model's headers where they can be read, or why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.check.estimate import check_machine, estimate
from builder.check.vllm_memory import check_division, check_memory, check_model, memory_of
from builder.engines.vllm import draft_of, offload
from builder.engines.vllm_checkpoint import check_quantization
from builder.sources.model import is_url, local_folder, model_of
from builder.sources.parameters import config_of, parameters_of, why_unknown
from shared.config import CogTRTLLMConfig, TensorRTLLMConfig, VLLMConfig
from shared.errors import CheckpointInvalid
from shared.vllm_arguments import SPECULATIVE

if TYPE_CHECKING:
    from pathlib import Path

    from builder.check.estimate import Estimate
    from builder.check.report import Report
    from builder.check.vllm_memory import Memory
    from builder.findings import Findings


def needs(
    report: Report, token: str | None, findings: Findings
) -> tuple[Estimate | Memory | None, str | None]:
    """The estimate, or why there is none; neither for an engine that has none. What it finds is reported."""
    config = report.config
    if not isinstance(config, CogTRTLLMConfig | TensorRTLLMConfig | VLLMConfig):
        return None, None
    wanted = model_of(config)
    assert wanted is not None  # only a mock has no model
    try:
        if isinstance(config, VLLMConfig):
            _check_draft(config, report.folder, token, findings)
        if is_url(wanted.model):
            return None, "only a build reads what is in a tar"
        model = local_folder(wanted.model, report.folder) or wanted.model
        if not isinstance(config, VLLMConfig):
            needed = estimate(parameters_of(model, wanted.revision, token), report.calls)
            check_machine(needed, findings)
            return needed, None
        described = config_of(model, wanted.revision, token)
        check_model(config, described, findings)
        check_division(config, described, findings)
        if (name := offload(config)) is not None:
            return None, f"with {name}, some of the weights are in the host's memory"
        memory = memory_of(config, parameters_of(model, wanted.revision, token), described)
    except Exception as error:  # the library raises no narrower type, and the check is useful without it
        return None, why_unknown(error)
    check_memory(config, memory, described, findings)
    return memory, None


def _check_draft(config: VLLMConfig, folder: Path | None, token: str | None, findings: Findings) -> None:
    """Report a draft model that a build refuses for how its weights are quantized."""
    draft = draft_of(config, folder)
    if draft is None or is_url(draft.model) or config.engine_args.get("hf_overrides"):
        return
    model = local_folder(draft.model, folder) or draft.model
    try:
        check_quantization(config_of(model, draft.revision, token))
    except CheckpointInvalid as error:
        findings.error((SPECULATIVE, "model"), error)
