"""What COG_WEIGHTS may name besides an engine: for vLLM an unconverted model, on the hub or in a folder."""

from __future__ import annotations

import os
import re
import stat
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from shared.artifact import CONFIG, MANIFEST, EngineFacts
from shared.errors import EngineKindMismatch, WeightsUnreachable
from shared.http import Unreachable
from shared.logs import get_logger, register_secret
from shared.secrets import public_address
from shared.source import ARCHIVES, NotThere, found, scheme
from shared.unreadable import reason_of

# The builder is imported late: an engine.tar starts without it.
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from runner.lifecycle.preparation import Check
    from runner.settings import Settings
    from shared.config import VLLMConfig

CONFIGS = (".yaml", ".yml")
# On the hub: owner/name, and after an @ a revision.
OF_THE_HUB = re.compile(r"(?!\.{1,2}/)[\w.-]+/[\w.-]+(@[\w./-]+)?", re.ASCII)

log = get_logger()


def engine_of(source: str, settings: Settings, check: Check) -> str:
    """The engine that `source` stands for, as `fetch_weights` takes it.

    The name of a model on the hub, a folder with a model, a config of vLLM, and a model repository of
    Triton's vLLM backend become a folder of links that a runner serves; `check` gets its facts before
    anything is fetched. Everything else is left as it is. Raises VllmRepositoryInvalid, WeightsNotStored,
    WeightsUnreachable, the builder's errors (E3xxx), and what `check` raises.
    """
    if scheme(source):
        return source
    path = Path(source)
    try:
        is_folder = stat.S_ISDIR(found(path).st_mode)
    except NotThere:
        if not OF_THE_HUB.fullmatch(source) or source.endswith((*ARCHIVES, *CONFIGS)):
            return source
        model, _, revision = source.partition("@")
        with _needed_for(f"{model}, which is not a file or folder here, and is taken for a model on the hub"):
            return _served(vllm_config(model, revision or None), settings, check)
    except Unreachable:
        return source
    if is_folder:
        try:
            return _of_folder(path.resolve(), settings, check) or source
        except OSError as error:  # something in it that this user may not read
            raise WeightsUnreachable(source=error.filename or source, reason=reason_of(error)) from None
    if path.suffix in CONFIGS:
        return _of_config(path, settings, check)
    return source


def _of_folder(path: Path, settings: Settings, check: Check) -> str | None:
    if (path / MANIFEST).is_file():
        return None
    from builder.sources.vllm_repository import is_vllm_repository, read_repository

    if is_vllm_repository(path):
        repository = read_repository(path)
        return _served(repository.config, settings, check, repository.folder, repository.adapters)
    if is_checkpoint(path):
        with _needed_for(f"{path}, which holds a model, not an engine"):
            return _served(vllm_config(str(path)), settings, check)
    return None


@contextmanager
def _needed_for(what: str) -> Iterator[None]:
    """Let EngineKindMismatch say why it takes vLLM."""
    try:
        yield
    except EngineKindMismatch as error:
        raise EngineKindMismatch(**error.details | {"why": f" for {what}"}) from None


def is_checkpoint(path: Path) -> bool:
    """Whether it is a model in the layout of `transformers`; engines have other keys in their config.json.

    A Git LFS pointer counts as a model's: what reads the model then names it.
    """
    from builder.model_json import is_lfs_pointer, read_object
    from shared.errors import CheckpointInvalid

    try:
        if (path / CONFIG).is_file() and is_lfs_pointer(path / CONFIG):
            return True
        return "model_type" in read_object(path / CONFIG)
    except CheckpointInvalid:
        return False


def _of_config(path: Path, settings: Settings, check: Check) -> str:
    from builder.check.source import check_source
    from shared.config import VLLMConfig
    from shared.errors import ConfigInvalid

    report = check_source(str(path))
    config = report.build_config()
    for one in report.diagnostics:
        log.warning("config", found=str(one))
    if not isinstance(config, VLLMConfig):
        reason = "only a config of vLLM can be served directly; build an engine.tar from this one"
        raise ConfigInvalid(source=str(path), reason=reason)
    return _served(config, settings, check, report.folder)


def vllm_config(model: str, revision: str | None = None) -> VLLMConfig:
    """The config of vLLM for a model without one. Raises ModelNotFound when nothing can have such a name."""
    from pydantic import ValidationError

    from shared.config import VLLMConfig
    from shared.errors import ModelNotFound
    from shared.validation import wanted

    try:
        return VLLMConfig.model_validate({"engine": "vllm", "model": model, "revision": revision})
    except ValidationError as error:
        [detail, *_] = error.errors()
        reason = f"its {'name' if detail['loc'][0] == 'model' else 'revision'} {wanted(detail)}"
        raise ModelNotFound(model=public_address(model), reason=reason) from None


def _served(
    config: VLLMConfig,
    settings: Settings,
    check: Check,
    folder: Path | None = None,
    adapters: Mapping[str, Path] | None = None,
) -> str:
    from builder.check.vllm import check_vllm
    from builder.engines.vllm import loaded_bytes, loads_whole, weights_bytes
    from builder.findings import Findings, Severity
    from builder.in_place import in_place
    from builder.sources.parameters import parameters_in
    from shared import VERSION
    from shared.errors import VllmRepositoryInvalid, WeightsTooLargeForGpu
    from shared.progress import stderr_progress

    ranks = config.tensor_parallel_size * config.pipeline_parallel_size
    facts = EngineFacts(engine=config.engine, model=config.model, ranks=ranks, cog_triton_version=VERSION)
    check(facts)
    findings = Findings()
    check_vllm(config, findings, within=())  # a config was checked already, so it is a model.json that errs
    if findings.errors:
        reason = "; ".join(str(one.error).rstrip(".") for one in findings.errors)
        raise VllmRepositoryInvalid(path=folder or config.model, reason=reason, fix="Correct its arguments")
    for one in findings.found:
        if one.severity is Severity.WARNING:
            log.warning("config", found=str(one.error))
    if adapters and settings.lora_folder is not None:
        raise VllmRepositoryInvalid(
            path=folder or config.model,
            reason="its multi_lora.json lists adapters, and LORA_FOLDER is set",
            fix="Unset LORA_FOLDER, or put all adapters into that folder and remove multi_lora.json",
        )

    token = os.environ.get("HF_TOKEN")
    register_secret(token or "")

    def accept(sizes: Mapping[str, int]) -> None:
        if not loads_whole(config):
            return
        try:
            check(facts.model_copy(update={"gpu_bytes": weights_bytes(sizes) // ranks}))
        except WeightsTooLargeForGpu:
            # Those in float32 take half of that: only now are the requests worth their time.
            read = partial(parameters_in, config.model, revision=config.revision, token=token)
            held = loaded_bytes(sizes, config.dtype, read)
            if held is not None:
                check(facts.model_copy(update={"gpu_bytes": held // ranks}))

    place = in_place(
        config,
        settings.weights_cache,
        folder=folder,
        adapters=adapters,
        hf_token=token,
        accept=accept,
        progress=stderr_progress(),
    )
    return str(place)
