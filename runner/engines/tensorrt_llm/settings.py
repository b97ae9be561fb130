"""What an unpacked engine.tar says about a TensorRT-LLM engine.

The engine's own config.json is what trtllm-build writes (`pretrained_config`, `build_config`).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from shared.errors import EngineOfAnotherVersion, EngineStartFailed, RanksMismatch

from .end_ids import eos_of

if TYPE_CHECKING:
    from pathlib import Path


# The distributions that say which TensorRT is installed; the first one found decides.
_TENSORRT = ("tensorrt_cu13", "tensorrt_cu12", "tensorrt")
_MANIFEST = "manifest.json"
# The environment variable in which the runner passes the server arguments, as JSON.
SERVER_ARGUMENTS = "COG_TRITON_SERVER_ARGUMENTS"


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """One engine. Lengths are in tokens."""

    model_path: Path
    vocab_size: int
    ranks: int
    max_input_len: int
    max_seq_len: int
    max_num_tokens: int
    packed_prompts: bool
    """Whether prompts of one step are packed without padding, so that `max_num_tokens` bounds them."""
    eos_id: int | None
    """Of the tokenizer beside the engine; None if its files do not say."""
    tensorrt_version: str | None
    """Of the TensorRT that built it, from the manifest; None for an engine without one."""
    server_arguments: dict[str, Any]
    """What the runner passes, else `instantiate.server.tensorrt_llm.args` of the config in engine.tar."""

    def max_prompt_tokens(self, *, chunked_context: bool) -> int:
        """The longest prompt that TensorRT-LLM accepts (TrtGptModel's maximum input length)."""
        if chunked_context:
            return self.max_seq_len - 1
        return min(self.max_seq_len - 1, self.max_num_tokens if self.packed_prompts else self.max_input_len)


def read_settings(engine_dir: Path) -> EngineSettings:
    """Read both config.json. Raises EngineStartFailed, and EngineOfAnotherVersion for an engine from before
    TensorRT-LLM 0.8.

    Archives from before manifests are flat, and hold no config of ours.
    """
    nested = (engine_dir / "engine").is_dir()
    model_path = engine_dir / "engine" if nested else engine_dir
    own = _read_object(engine_dir / "config.json") if nested else {}
    manifest = _read_object(engine_dir / _MANIFEST) if (engine_dir / _MANIFEST).is_file() else {}
    engine = _read_object(model_path / "config.json")
    if "version" not in engine and "builder_config" in engine:
        raise EngineOfAnotherVersion(reason="it dates from before TensorRT-LLM 0.8")
    try:
        pretrained, build = engine["pretrained_config"], engine["build_config"]
        mapping, plugins = pretrained.get("mapping") or {}, build.get("plugin_config") or {}
        settings = EngineSettings(
            model_path=model_path,
            vocab_size=int(pretrained["vocab_size"]),
            ranks=_product(mapping, "tp_size", "pp_size", "cp_size"),
            max_input_len=int(build["max_input_len"]),
            max_seq_len=int(build["max_seq_len"]),
            max_num_tokens=int(build["max_num_tokens"]),
            packed_prompts=bool(
                plugins.get("context_fmha", True) and plugins.get("remove_input_padding", True)
            ),
            eos_id=eos_of(engine_dir / "tokenizer" if nested else engine_dir),
            tensorrt_version=manifest.get("tensorrt_version"),
            server_arguments=_server_arguments(own),
        )
    except KeyError as missing:
        raise EngineStartFailed(reason=f"the engine's config.json has no {missing.args[0]}") from None
    except (TypeError, ValueError, AttributeError):
        raise EngineStartFailed(reason="the engine's config.json is not as TensorRT-LLM writes it") from None
    for rank in range(settings.ranks):
        if not (model_path / f"rank{rank}.engine").is_file():
            raise EngineStartFailed(reason=f"the engine has no file rank{rank}.engine")
    return settings


def check_version(settings: EngineSettings) -> None:
    """Raise EngineOfAnotherVersion when a TensorRT other than the installed one built the engine, before it
    takes minutes to load.

    A plan loads only with its own version; ".post1" is another package of the same library.
    """
    built, here = settings.tensorrt_version, _installed_tensorrt()
    if built and here and built.partition(".post")[0] != here.partition(".post")[0]:
        raise EngineOfAnotherVersion(reason=f"it needs TensorRT {built}, and the one here is {here}")


def _installed_tensorrt() -> str | None:
    for name in _TENSORRT:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def rank_count(engine_dir: Path) -> int:
    """How many ranks the engine is for. Raises RanksMismatch when WORLD_SIZE says otherwise,
    EngineStartFailed and EngineOfAnotherVersion.
    """
    ranks = read_settings(engine_dir).ranks
    world_size = os.environ.get("WORLD_SIZE", "").strip()
    if world_size and world_size != str(ranks):
        raise RanksMismatch(reason=f"it was built for {ranks}, and WORLD_SIZE is {world_size}")
    return ranks


def _product(mapping: dict[str, Any], *names: str) -> int:
    product = 1
    for name in names:
        product *= int(mapping.get(name) or 1)
    return product


def _server_arguments(config: dict[str, Any]) -> dict[str, Any]:
    if (given := os.environ.get(SERVER_ARGUMENTS)) is not None:
        return dict(json.loads(given))
    section: Any = config
    for key in ("instantiate", "server", "tensorrt_llm", "args"):
        section = (section or {}).get(key)
    return dict(section or {})


def _read_object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise EngineStartFailed(reason=f"the engine's {path.name} cannot be read") from error
    if not isinstance(content, dict):
        raise EngineStartFailed(reason=f"the engine's {path.name} is not a JSON object")
    return content
