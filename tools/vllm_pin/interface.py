"""What the engine uses of vLLM's modules, and the defaults of engine arguments; read without importing."""

from __future__ import annotations

import ast
import re
from difflib import unified_diff
from typing import TYPE_CHECKING
from zipfile import ZipFile

from shared.layout import PROJECT_ROOT
from tools.vllm_arguments.source import Sources

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ENGINE = PROJECT_ROOT / "runner/engines/vllm"
# By module: the classes that the engine imports, and those that it gets from them.
USED = {
    "vllm/engine/arg_utils.py": {"EngineArgs"},
    "vllm/lora/request.py": {"LoRARequest"},
    "vllm/sampling_params.py": {"SamplingParams", "StructuredOutputsParams"},
    "vllm/usage/usage_lib.py": {"UsageContext"},
    "vllm/v1/engine/__init__.py": {
        "EngineCoreOutput",
        "EngineCoreOutputs",
        "EngineCoreRequest",
        "EngineCoreRequestType",
        "FinishReason",
    },
    "vllm/v1/engine/core_client.py": {"BackgroundResources", "EngineCoreClient", "MPClient", "SyncMPClient"},
    "vllm/v1/executor/abstract.py": {"Executor"},
    "vllm/v1/executor/multiproc_executor.py": {"MultiprocExecutor"},
    "vllm/v1/executor/uniproc_executor.py": {"UniProcExecutor"},
    "vllm/v1/metrics/stats.py": {"PrefillStats", "SchedulerStats"},
    "vllm/v1/structured_output/backend_guidance.py": {"GuidanceBackend", "GuidanceGrammar"},
}
_VARIABLES = "vllm/envs.py"
_SET = "set by a method"
_BY_HARDWARE = "get_batch_defaults"  # the method that gives defaults for the GPU that is there


def described(place: Path) -> dict[str, str]:
    """What the wheel at `place` (or a folder with its files) has of all that, each as a line of Python.

    The keys are `Class.member`, and the names of environment variables.
    """
    found: dict[str, str] = {}
    for path, classes in USED.items():
        for node in ast.parse(_text(place, path)).body:
            if isinstance(node, ast.ClassDef) and node.name in classes:
                members = _members(node, fields=node.name != "EngineArgs")  # its fields are arguments
                found |= {f"{node.name}.{name}": text for name, text in members}
    ours = set(re.findall(r"\bVLLM_[A-Z0-9_]+", "".join(path.read_text() for path in ENGINE.glob("*.py"))))
    for table in ast.walk(ast.parse(_text(place, _VARIABLES))):
        if isinstance(table, ast.Dict):
            for key, value in zip(table.keys, table.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str) and key.value in ours:
                    found[key.value] = ast.unparse(value)
    return found


def changed_interface(old: Path, new: Path) -> Iterator[str]:
    """Each difference of what the engine uses, one per line; and fields that are new there."""
    before, now = described(old), described(new)
    named = _named()
    for name in sorted(before.keys() | now.keys()):
        if name not in before and not now[name].startswith(("(", _SET)):
            yield f"interface: new: {name}: {now[name]}"
        elif name not in before or name.rpartition(".")[2] not in named:
            continue
        elif name not in now:
            yield f"interface: gone: {name}"
        elif before[name] != now[name]:
            yield f"interface: changed: {name}: {before[name]} -> {now[name]}"


def changed_defaults(old: Path, new: Path) -> Iterator[str]:
    """Each engine argument of both with another default; and the lines of those that depend on the GPU."""
    before, now = _defaults(old), _defaults(new)
    for name in sorted(before.keys() & now.keys()):
        if before[name] != now[name]:
            yield f"default: {name}: {before[name]} -> {now[name]}"
    for line in list(unified_diff(_by_hardware(old), _by_hardware(new), n=0, lineterm=""))[2:]:
        if not line.startswith("@@"):
            yield f"default by hardware: {line[0]} {line[1:].strip()}"


def _defaults(place: Path) -> dict[str, str]:
    sources = Sources.read(place)
    return {name: sources.default(name, one) for name, one in sources.fields("EngineArgs").items()}


def _by_hardware(place: Path) -> list[str]:
    for node in ast.walk(ast.parse(_text(place, "vllm/engine/arg_utils.py"))):
        if isinstance(node, ast.FunctionDef) and node.name == _BY_HARDWARE:
            return ast.unparse(node).splitlines()
    return []


def _named() -> set[str]:
    """Every name in the engine's modules that may be one of vLLM's."""
    found = set()
    for path in ENGINE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Attribute(attr=name) | ast.keyword(arg=str(name)) | ast.FunctionDef(name=name):
                    found.add(name)
                case ast.Constant(value=str(name)):  # of getattr, and of the environment
                    found.add(name)
    return found


def _members(node: ast.ClassDef, *, fields: bool) -> Iterator[tuple[str, str]]:
    """Fields, members of an enumeration, methods, and what methods set; those of the class itself."""
    for part in node.body:
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            yield part.name, f"({ast.unparse(part.args)})"
            for inner in ast.walk(part) if fields else ():
                if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
                    yield inner.attr, _SET
        elif fields and isinstance(part, ast.AnnAssign):
            default = f" = {ast.unparse(part.value)}" if part.value else ""
            yield ast.unparse(part.target), ast.unparse(part.annotation) + default
        elif fields and isinstance(part, ast.Assign):
            for target in part.targets:
                yield ast.unparse(target), ast.unparse(part.value)


def _text(place: Path, name: str) -> str:
    if place.is_dir():
        return (place / name).read_text()
    with ZipFile(place) as wheel:
        return wheel.read(name).decode()
