"""A model for vLLM: the files of the checkpoint as published, packed from where they are."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatch
from typing import TYPE_CHECKING, ClassVar

from builder.sources.download import WEIGHT_FILES, Download, weights_form
from builder.sources.model import PUBLISHED
from builder.step import Build, BuiltWith
from shared.vllm_arguments import table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from builder.step import Model
    from shared.config import VLLMConfig
    from shared.progress import StepProgress

# What vLLM reads of a model besides the weights. Its tokenizer is for the runner, in tokenizer/.
_READ = (
    "config.json",
    "generation_config.json",
    "hf_quant_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "quant_config.json",
    "quantize_config.json",
)
_CHANGES = ("hf_overrides", "load_format")
_CODE = "*.py"  # that comes with a model, and the operator allows to run


@dataclass(frozen=True, slots=True)
class FetchDraft:
    """Get the draft model and set `Build.draft`."""

    model: str
    revision: str | None
    beside: Path | None

    name: ClassVar[str] = "download draft"

    def run(self, build: Build, progress: StepProgress) -> None:
        """Raises what `Download` does."""
        work_dir = build.work_dir / "draft"
        work_dir.mkdir()
        own = Build(work_dir, build.output, build.hf_token)
        download = Download(self.model, self.revision, PUBLISHED, self.beside, _READ, needs_tokenizer=False)
        download.run(own, progress)
        build.draft = own.model


@dataclass(frozen=True, slots=True)
class TakeModel:
    """Choose the files of `Build.model` and `Build.draft` that make the engine; nothing is copied."""

    gpus: int
    code: bool
    """Whether the model's own code is included."""
    whole: bool
    """Whether the GPUs hold the weights as they are published."""

    name: ClassVar[str] = "take the model"

    def run(self, build: Build, progress: StepProgress) -> None:  # noqa: ARG002 - over at once
        """Set `Build.packed` and `Build.built_with`."""
        assert build.model is not None
        build.packed = {f"engine/{path.name}": path for path in self._files(build.model)}
        if build.draft is not None:
            build.packed |= {f"draft/{path.name}": path for path in self._files(build.draft)}
        sizes = {path.name: path.stat().st_size for path in build.model.path.iterdir() if path.is_file()}
        gpu_bytes = weights_bytes(sizes) // self.gpus if self.whole else None
        build.built_with = BuiltWith(engine_version=table()["version"], ranks=self.gpus, gpu_bytes=gpu_bytes)

    def _files(self, model: Model) -> list[Path]:
        names = sorted(path.name for path in model.path.iterdir() if path.is_file())
        form = weights_form(names, PUBLISHED)
        patterns = [*_READ, *(WEIGHT_FILES[form] if form else ()), *([_CODE] if self.code else ())]
        return [model.path / name for name in names if any(fnmatch(name, one) for one in patterns)]


def weights_bytes(sizes: Mapping[str, int]) -> int:
    """Of a model with files of these sizes; where it has them twice, whole and in parts, the larger."""
    form = weights_form(sorted(sizes), PUBLISHED)
    patterns = WEIGHT_FILES[form] if form else ()
    ours = {name: size for name, size in sizes.items() if any(fnmatch(name, one) for one in patterns)}
    parts = sum(size for name, size in ours.items() if "-of-" in name)
    return max(parts, *ours.values(), 0)


def loads_whole(config: VLLMConfig) -> bool:
    """Whether GPUs will hold the weights as they are published: none left out, made smaller or offloaded."""
    changes = [name for name in config.engine_args if name in _CHANGES or "offload" in name]
    return config.quantization is None and not changes


def runs_code(config: VLLMConfig) -> bool:
    """Whether the model's own code will run; the config's check made sure that the operator allows it."""
    return bool(config.engine_args.get("trust_remote_code"))


def vllm_files(config: VLLMConfig) -> tuple[str, ...]:
    """Patterns of what to fetch of a model besides its tokenizer and its weights."""
    return (*_READ, _CODE) if runs_code(config) else _READ
