"""Where what vLLM compiles is kept from one start to the next: below COMPILE_CACHE, and in engine.tar.

Each folder there is for one combination of everything that its contents may depend on: the versions of the
packages, the driver, the GPUs, the number of hosts, the engine arguments and the model. Its name is a digest
of these, and made-for.json in it lists them. Its contents are never used for another. Standard library only,
but for NVML.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from shared.home import SCRATCH
from shared.vllm_arguments import code_is_allowed

COMPILE_CACHE = "COMPILE_CACHE"
SHIPPED = "compiled"
"""The folder of engine.tar that holds such folders."""
MADE_FOR = "made-for.json"
NOT_SHIPPED = ("model", "zig")  # a link, and what the compiler keeps for itself
_KEPT = 8  # of the folders, those that were used last
_VARIABLES = {
    "VLLM_CACHE_ROOT": "vllm",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "CUDA_CACHE_PATH": "cuda",  # what the driver makes of PTX
    "FLASH_ATTENTION_CUTE_DSL_CACHE_DIR": "flash_attention",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "TILELANG_CACHE_DIR": "tilelang",
    "ZIG_GLOBAL_CACHE_DIR": "zig",
}


def use_compile_cache(engine_dir: Path, arguments: dict[str, Any], hosts: int = 1) -> dict[str, Any]:
    """Have vLLM keep what it compiles where COMPILE_CACHE says; variables that the operator has set stay.

    `hosts`: over how many the engine is spread. What is compiled for a worker names its GPU by its number on
    its host, and on two hosts the second worker has another than on one.

    Returns the arguments that replace some of `arguments`: vLLM's own keys contain the model's path, which
    must be the same at each start. Raises OSError when nothing can be written to SCRATCH either.
    """
    if not (named := os.environ.get(COMPILE_CACHE)):
        return {}
    text = json.dumps(_facts(engine_dir, arguments, hosts), indent=1, sort_keys=True)
    try:
        folder = _folder(Path(named), engine_dir, text)
    except OSError as problem:
        sys.stderr.write(
            f"{COMPILE_CACHE} ({named}) cannot be written to ({problem.strerror}): what vLLM compiles is lost"
            " when the runner ends, and its next start compiles again\n"
        )
        if not (scratch := os.environ.get(SCRATCH)):
            return {}
        folder = _folder(Path(scratch, SHIPPED), engine_dir, text)
    with suppress(OSError):  # another process may remove them too
        _forget(folder.parent)
    for variable, name in _VARIABLES.items():
        os.environ.setdefault(variable, str(folder / name))
    return {"model": str(folder / "model")}


def _folder(root: Path, engine_dir: Path, text: str) -> Path:
    """The folder below `root` for what `text` says, made if need be. Raises OSError."""
    folder = root / sha256(text.encode()).hexdigest()[:32]
    if not (folder / MADE_FOR).is_file():
        _make(folder, engine_dir / SHIPPED / folder.name, text)
    os.utime(folder)
    _link(folder / "model", (engine_dir / "engine").absolute())
    return folder


def model_of(engine_dir: Path) -> str:
    """A digest of an engine's model: of its files as the manifest lists them, or else of where they are."""
    try:
        listed = json.loads((engine_dir / "manifest.json").read_bytes())["files"]
    except (OSError, ValueError, KeyError, TypeError):
        listed = []
    told: list[Any] = [[file["name"], file["sha256"]] for file in listed if _is_model(file["name"])]
    if not told:
        paths = [path for name in ("engine", "draft") for path in sorted((engine_dir / name).glob("*"))]
        stats = [(path, path.stat()) for path in paths]
        told = [[os.path.realpath(path), stat.st_size, stat.st_mtime_ns] for path, stat in stats]
    return sha256(json.dumps(told).encode()).hexdigest()


def made_for(folder: Path) -> dict[str, Any]:
    """What a folder is for; empty if it is not one of these."""
    try:
        facts = json.loads((folder / MADE_FOR).read_bytes())
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _is_model(name: str) -> bool:
    return name.startswith(("engine/", "draft/"))


def _facts(engine_dir: Path, arguments: dict[str, Any], hosts: int) -> dict[str, Any]:
    packages = {path.name for place in sys.path for path in Path(place).glob("*.dist-info")}
    others = {name: value for name, value in arguments.items() if name not in ("model", "tokenizer")}
    return {
        "packages": sorted(packages),
        "python": sys.version,
        "arguments": json.loads(json.dumps(others, default=str).replace(str(engine_dir), ".")),
        "model": model_of(engine_dir),
        "hosts": hosts,
        **_gpus(),
    }


def _gpus() -> dict[str, Any]:
    try:
        import pynvml

        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return {
            "driver": pynvml.nvmlSystemGetDriverVersion(),
            "gpus": [
                [pynvml.nvmlDeviceGetName(handle), *pynvml.nvmlDeviceGetCudaComputeCapability(handle)]
                for handle in handles
            ],
        }
    except Exception:  # no library, no driver: the machine has no GPU
        return {"driver": None, "gpus": []}


def _make(folder: Path, shipped: Path, text: str) -> None:
    """Make the folder, completely or not at all, with what engine.tar brings for it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    try:
        if (shipped / MADE_FOR).is_file() and _may_be_run(shipped):
            shutil.copytree(shipped, made, dirs_exist_ok=True)
        (made / MADE_FOR).write_text(text)
        try:
            made.rename(folder)
        except OSError:
            if not (folder / MADE_FOR).is_file():  # else another process was first
                raise
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _may_be_run(shipped: Path) -> bool:
    """Whether the operator lets an archive bring code: what is compiled is loaded unchecked."""
    if code_is_allowed(os.environ):
        return True
    sys.stderr.write(
        f"engine.tar includes what vLLM compiled for a machine like this one ({SHIPPED}/{shipped.name}), but"
        " it is loaded only if ALLOW_MODEL_CODE=1: vLLM compiles it again\n"
    )
    return False


def _link(link: Path, target: Path) -> None:
    """Replaced in one step: another engine of the same model may start meanwhile."""
    made = link.with_name(f".{link.name}-{os.getpid()}")
    made.symlink_to(target)
    made.replace(link)


def _forget(root: Path) -> None:
    """Remove the least recently used folders."""
    folders = [path for path in root.iterdir() if made_for(path)]
    for old in sorted(folders, key=lambda path: path.stat().st_mtime, reverse=True)[_KEPT:]:
        shutil.rmtree(old, ignore_errors=True)
