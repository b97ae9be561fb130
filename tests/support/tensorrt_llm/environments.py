"""An engine environment with the stand-in, as the builder finds it in an installation."""

from __future__ import annotations

import site
import sys
from pathlib import Path

from . import VERSION
from .tool import FAIL

SUPPORT = Path(__file__).resolve().parent.parent
_PACKAGES = {"tensorrt_llm": VERSION, "tensorrt_cu13": "10.14.1.48.post1", "nvidia_cuda_runtime": "13.0.48"}
_TOOL = "import sys\nfrom tensorrt_llm.{module} import {call}\nsys.exit({call}({arguments}))\n"


def install(home: Path) -> Path:
    """Put the stand-in under the installation `home`; return the environment."""
    place = home / "engines/tensorrt_llm"
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    # NumPy and safetensors are those of the tests.
    make(place, Path(sys.executable).resolve(), version, [str(SUPPORT), *site.getsitepackages()])
    return place


def make(place: Path, interpreter: Path, version: str, path: list[str]) -> None:
    """Make the environment at `place`; `path` has the stand-in and what it imports."""
    packages = place / f"lib/python{version}/site-packages"
    packages.mkdir(parents=True)
    (place / "bin").mkdir()
    (place / "bin/python").symlink_to(interpreter)
    (place / "pyvenv.cfg").write_text(f"home = {interpreter.parent}\n")
    (packages / "stand-in.pth").write_text("\n".join(path))
    for name, version in _PACKAGES.items():
        (packages / f"{name}-{version}.dist-info").mkdir()
        (packages / f"{name}-{version}.dist-info/METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    _tool(place / "bin/trtllm-build", "build", "main")
    _tool(place / "examples/quantization/quantize.py", "convert", "quantize")
    for family in ("llama", "gpt", "qwen"):
        script = place / f"examples/models/core/{family}/convert_checkpoint.py"
        _tool(script, "convert", "convert", repr(family))


def install_all(home: Path) -> Path:
    """As `install`, with the stand-ins of the executor and of PyTorch and transformers too."""
    place = home / "engines/tensorrt_llm"
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    stand_ins = [str(SUPPORT / name) for name in ("executor_stand_in", "reference_stand_in")]
    path = [*stand_ins, str(SUPPORT.parent.parent), *site.getsitepackages()]
    make(place, Path(sys.executable).resolve(), version, path)
    return place


def fail(environment: Path, tool: str, failure: str) -> None:
    """Let `tool` fail in one of the ways of `tool.FAILURES`."""
    (environment / FAIL).write_text(f"{tool} {failure}")


def _tool(path: Path, module: str, call: str, arguments: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_TOOL.format(module=module, call=call, arguments=arguments))
    path.chmod(0o755)
