"""A model for vLLM: the files of the checkpoint as published, packed from where they are."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from builder.engines.vllm_checkpoint import check_quantization
from builder.model_json import read_object
from builder.sources.download import Download, weights_patterns
from builder.sources.model import PUBLISHED
from builder.sources.parameters import bytes_held, bytes_of, parameters_in
from builder.sources.weights import INDEX, WEIGHTS, indexed
from builder.step import Build, BuiltWith
from shared.vllm_arguments import table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
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
_WHOLE = ("model.safetensors", "pytorch_model.bin")
_CHANGES = ("hf_overrides", "load_format")
_OFFLOAD = ("cpu_offload_gb", "offload_group_size")  # 0, their default: nothing is
_CODE = "*.py"  # that comes with a model, and the operator allows to run


@dataclass(frozen=True, slots=True)
class FetchDraft:
    """Get the draft model and set `Build.draft`."""

    download: Download

    name: ClassVar[str] = "download draft"

    def run(self, build: Build, progress: StepProgress) -> None:
        """Raises what `Download` does."""
        work_dir = build.work_dir / "draft"
        work_dir.mkdir()
        own = Build(work_dir, build.output, build.hf_token, tars=build.tars)
        self.download.run(own, progress)
        build.draft = own.model


@dataclass(frozen=True, slots=True)
class TakeModel:
    """Choose the files of `Build.model` and `Build.draft` that make the engine; nothing is copied."""

    gpus: int
    code: bool
    """Whether the model's own code is included."""
    whole: bool
    """Whether the GPUs hold all of the weights, in `dtype` unless they are quantized."""
    dtype: str
    overridden: bool
    """Whether `hf_overrides` change what the checkpoint says of itself."""

    name: ClassVar[str] = "take the model"

    def run(self, build: Build, progress: StepProgress) -> None:  # noqa: ARG002 - over at once
        """Set `Build.packed` and `Build.built_with`. Raises CheckpointInvalid."""
        assert build.model is not None
        for one in (build.model, build.draft):
            if one is not None and not self.overridden:
                check_quantization(read_object(one.path / "config.json"))
        build.packed = {f"engine/{path.name}": path for path in self._files(build.model)}
        if build.draft is not None:
            build.packed |= {f"draft/{path.name}": path for path in self._files(build.draft)}
        sizes = {path.name: path.stat().st_size for path in self._files(build.model)}
        held = loaded_bytes(sizes, self.dtype, partial(parameters_in, build.model.path))
        gpu_bytes = held // self.gpus if self.whole and held is not None else None
        build.built_with = BuiltWith(engine_version=table()["version"], ranks=self.gpus, gpu_bytes=gpu_bytes)

    def _files(self, model: Model) -> list[Path]:
        names = sorted(path.name for path in model.path.iterdir() if path.is_file())
        patterns = [*_READ, *weights_patterns(names, PUBLISHED), *([_CODE] if self.code else ())]
        taken = [name for name in names if any(fnmatch(name, one) for one in patterns)]
        return [model.path / name for name in sorted({*taken, *indexed(model.path, taken, names)})]


def weights_bytes(sizes: Mapping[str, int]) -> int:
    """The bytes of its weights, of a model of which files of these sizes are taken."""
    return sum(_weights(sizes).values())


def loaded_bytes(
    sizes: Mapping[str, int], dtype: str, read: Callable[[Iterable[str]], Mapping[str, int]]
) -> int | None:
    """As `weights_bytes`, of the weights as vLLM loads them; `read` gives the parameters, by type, of files.

    None for pickled weights: only those who load them know their types.
    """
    weights = _weights(sizes)
    if not all(name.endswith(".safetensors") for name in weights):
        return None
    try:
        parameters = read(weights)
    except Exception:  # the library raises no narrower type, and only float32 takes another size
        parameters = {}
    return sum(weights.values()) - bytes_of(parameters) + bytes_held(parameters, dtype)


def _weights(sizes: Mapping[str, int]) -> dict[str, int]:
    """Those of `sizes` that are weights; of a whole file and parts, if no index says which are meant, the
    larger.
    """
    weights = {name: size for name, size in sizes.items() if name.endswith(WEIGHTS)}
    if any(name.endswith(INDEX) for name in sizes):
        return weights
    whole = {name: weights.pop(name) for name in _WHOLE if name in weights}
    return max(whole, weights, key=lambda files: sum(files.values()))


def loads_whole(config: VLLMConfig) -> bool:
    """Whether GPUs will hold all weights of the model: none left out, quantized or offloaded."""
    changes = [name for name in config.engine_args if name in _CHANGES or "offload" in name]
    return config.quantization is None and not changes


def offload(config: VLLMConfig) -> str | None:
    """The argument that keeps some of the weights in the host's memory; None if all are on GPUs."""
    return next((name for name in _OFFLOAD if config.engine_args.get(name)), None)


def runs_code(config: VLLMConfig) -> bool:
    """Whether the model's own code will run; the config's check made sure that the operator allows it."""
    return bool(config.engine_args.get("trust_remote_code"))


def draft_of(config: VLLMConfig, folder: Path | None) -> Download | None:
    """The draft model in `config`, whose paths start at `folder`; None if it has none."""
    speculative = config.speculative_config or {}
    model, revision = (
        None if speculative.get(key) is None else str(speculative[key]) for key in ("model", "revision")
    )
    if model is None:
        return None
    return Download(model, revision, PUBLISHED, folder, _READ, needs_tokenizer=False)


def vllm_files(config: VLLMConfig) -> tuple[str, ...]:
    """Patterns of what to fetch of a model besides its tokenizer and its weights."""
    return (*_READ, _CODE) if runs_code(config) else _READ
