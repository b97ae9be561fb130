"""What people ask to have served: an engine.tar, or for vLLM an unconverted model."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shared.artifact import EngineFacts
    from shared.config import VLLMConfig

    Check = Callable[[EngineFacts], None]

_CONFIGS = (".yaml", ".yml")
# On the hub: owner/name, and after an @ a revision.
_OF_THE_HUB = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?", re.ASCII)
_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.zst")


def runs_here(facts: EngineFacts, *, joins: bool = False) -> None:
    """Refuse what cannot run on this machine; one that `joins` others runs only a part. Raises as
    check_machine.
    """
    from runner.lifecycle.machine import check_machine
    from runner.settings import Settings

    settings = Settings.from_environment(os.environ)
    several = joins or settings.several_hosts
    check_machine(facts.engine, facts, settings.image_sm, several_hosts=several)


def weights_of(engine: str, check: Check = lambda _facts: None) -> str:
    """`engine` in the form that COG_WEIGHTS has, wherever that is read.

    The name of a model on the hub, a folder with a model, a config of vLLM, and a model repository of
    Triton's vLLM backend become a folder of links that a runner serves; `check` gets its facts before
    anything is fetched. Raises EngineKindMismatch, VllmRepositoryInvalid, the builder's errors (E3xxx), and
    what `check` raises.
    """
    if "://" in engine:
        return engine
    path = Path(engine)
    if path.is_dir():
        return _of_folder(path.resolve(), check)
    if path.suffix in _CONFIGS and path.is_file():
        return _of_config(path, check)
    if not path.exists() and _OF_THE_HUB.fullmatch(engine) and not engine.endswith(_ARCHIVES):
        model, _, revision = engine.partition("@")
        return _served(_config(model, revision or None), None, check)
    return str(path.resolve())


def _of_folder(path: Path, check: Check) -> str:
    from builder.sources.vllm_repository import is_vllm_repository, read_repository

    if is_vllm_repository(path):
        repository = read_repository(path)
        return _served(repository.config, repository.folder, check, repository.adapters)
    if _is_checkpoint(path):
        return _served(_config(str(path), None), None, check)
    return str(path)


def _is_checkpoint(path: Path) -> bool:
    """Whether it is a model in the layout of `transformers`; engines have other keys in their config.json."""
    from builder.model_json import read_object
    from shared.artifact import CONFIG, MANIFEST
    from shared.errors import CheckpointInvalid

    if (path / MANIFEST).exists():
        return False
    try:
        return "model_type" in read_object(path / CONFIG)
    except CheckpointInvalid:
        return False


def _of_config(path: Path, check: Check) -> str:
    from builder.check.source import check_source
    from shared.config import VLLMConfig
    from shared.errors import ConfigInvalid

    report = check_source(str(path))
    config = report.build_config()
    for one in report.diagnostics:
        typer.echo(str(one), err=True)
    if not isinstance(config, VLLMConfig):
        reason = "only a config of vLLM can be served directly; build an engine.tar from this one"
        raise ConfigInvalid(source=str(path), reason=reason)
    return _served(config, report.folder, check)


def _config(model: str, revision: str | None) -> VLLMConfig:
    from shared.config import VLLMConfig

    return VLLMConfig.model_validate({"engine": "vllm", "model": model, "revision": revision})


def _served(
    config: VLLMConfig, folder: Path | None, check: Check, adapters: Mapping[str, Path] | None = None
) -> str:
    from builder.check.vllm import check_vllm
    from builder.findings import Findings, Severity
    from builder.in_place import in_place
    from runner.settings import Settings
    from shared import VERSION
    from shared.artifact import EngineFacts
    from shared.errors import EngineKindMismatch, VllmRepositoryInvalid
    from shared.layout import Layout
    from shared.logs import configure_logging, register_secret
    from shared.progress import stderr_progress

    available = Layout.current().available_engines()
    if config.engine not in available:
        raise EngineKindMismatch(kind=config.engine, available=", ".join(available))
    findings = Findings()
    check_vllm(config, findings)
    if findings.errors:
        reason = "; ".join(str(one.error) for one in findings.errors)
        raise VllmRepositoryInvalid(path=folder or config.model, reason=reason, fix="Correct its arguments")
    for one in findings.found:
        if one.severity is Severity.WARNING:
            typer.echo(f"warning: {one.error}", err=True)
    ranks = config.tensor_parallel_size * config.pipeline_parallel_size
    check(EngineFacts(engine=config.engine, model=config.model, ranks=ranks, cog_triton_version=VERSION))
    token = os.environ.get("HF_TOKEN")
    register_secret(token or "")
    configure_logging()
    settings = Settings.from_environment(os.environ)
    if adapters and settings.lora_folder is not None:
        raise VllmRepositoryInvalid(
            path=folder or config.model,
            reason="its multi_lora.json lists adapters, and LORA_FOLDER is set",
            fix="Unset LORA_FOLDER, or put all adapters into that folder and remove multi_lora.json",
        )
    return str(
        in_place(
            config,
            settings.weights_cache,
            folder=folder,
            adapters=adapters,
            hf_token=token,
            progress=stderr_progress(),
        )
    )
