"""`cog-triton acceptance` on the stand-ins: all is as assumed; each seeded difference is found, by name.

The engines, Triton, the bridge and the server are real; the stand-ins are those of TensorRT-LLM, its tools,
mpirun, the driver, and transformers.
"""

from __future__ import annotations

import _ctypes
import ctypes
import json
import os
import shutil
import sys
from typing import TYPE_CHECKING

import ml_dtypes  # noqa: F401 - teaches NumPy the type of the weights
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from cli.acceptance import CHECKS
from shared.layout import PROJECT_ROOT, Layout
from tests.support.acceptance import accept
from tests.support.driver import stand_in_driver
from tests.support.tensorrt_llm.environments import install_all
from tests.support.tensorrt_llm.faults import FILE

if TYPE_CHECKING:
    from pathlib import Path

DEMO = PROJECT_ROOT / "demo/model"
SUPPORT = PROJECT_ROOT / "tests/support"
# A seeded fault, and the check that finds it.
FAULTS = {
    "another version": "import",
    "no fail fast": "parameters",
    "attention sinks": "refusals",
    "broken library": "libraries",
    "another argument": "help of trtllm-build",
    "no max_num_tokens": "short form",
    "nothing quantized": "AWQ",
    "another token": "greedy",
    "cumulative streaming": "streaming",
    "no cancel": "cancel",
    "end id in output": "end id",
    "no stop words": "another end id",
    "no minimum": "min_tokens",
    "shorter prompts": "longest prompt",
    "no chunks": "max_utilization",
    "silent logger": "plan that cannot be read",
    "MPI stays": "the end of ranks",
}


def padded_model(directory: Path) -> Path:
    """The demo's model with an intermediate size that 128 divides: what is added is zero, and adds nothing."""
    directory.mkdir()
    for file in DEMO.iterdir():
        (directory / file.name).write_bytes(file.read_bytes())
    config = json.loads((DEMO / "config.json").read_text())
    config["intermediate_size"], size = 384, config["intermediate_size"]
    (directory / "config.json").write_text(json.dumps(config))
    tensors = load_file(DEMO / "model.safetensors")
    for name, tensor in tensors.items():
        if ".mlp." in name:
            axis = tensor.shape.index(size)
            missing = [(0, 384 - size if at == axis else 0) for at in range(2)]
            tensors[name] = np.pad(tensor, missing)
    save_file(tensors, directory / "model.safetensors")
    return directory


def stand_in_libpython(directory: Path) -> None:
    """Debian's Python comes without a library of that name: there any library stands in for it."""
    directory.mkdir()
    name = f"libpython{sys.version_info[0]}.{sys.version_info[1]}.so"
    for one in (name, f"{name}.1.0"):
        try:
            ctypes.CDLL(one)
        except OSError:
            shutil.copyfile(_ctypes.__file__, directory / one)


class Machine:
    """One with two GPUs and TensorRT-LLM, as far as the stand-ins go."""

    def __init__(self, directory: Path) -> None:
        self.environment = install_all(directory / "home")
        for part in ("triton", "bridge"):
            (directory / "home" / part).symlink_to(Layout.current().home / part)
        (self.environment / "broken").mkdir()
        (self.environment / "broken/libbroken.so").write_text("no library")
        self.libraries = directory / "libraries"
        stand_in_libpython(self.libraries)
        stand_in_driver(self.libraries)
        self.model = padded_model(directory / "model")
        self.work_dir = directory / "work"
        self.report = directory / "report.md"

    def accept(self, *arguments: str, faults: str = "", **more: str) -> tuple[int, dict]:
        """Run the command with these faults; its status and its JSON. No process may be left."""
        (self.environment / FILE).write_text(faults)
        environment = {
            "PATH": f"{SUPPORT / 'mpirun_stand_in'}:{os.environ['PATH']}",
            "OPENBLAS_NUM_THREADS": "1",
            **more,
        }
        return accept(
            self.model,
            self.work_dir,
            *arguments,
            home=self.environment.parent.parent,
            libraries=self.libraries,
            environment=environment,
        )


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    return Machine(tmp_path_factory.mktemp("acceptance"))


# A whole run of the checks starts dozens of engines.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def accepted(machine):
    """A whole run without a fault; its engines are those of the runs that follow."""
    return machine.accept("--report", str(machine.report))


def test_the_stand_ins_are_as_assumed(accepted):
    status, report = accepted
    ended = {check["name"]: check["status"] for check in report["checks"]}
    failed = [check for check in report["checks"] if check["status"] == "failed"]
    assert not failed, json.dumps(failed, indent=1)
    assert {name for name in ended if ended[name] == "skipped"} == {"other image"}
    assert list(ended) == [check.name for check in CHECKS["tensorrt_llm"]]
    assert status == 0


def test_the_report_can_be_pasted(accepted, machine):
    text = machine.report.read_text()
    assert text.startswith("# Acceptance of TensorRT-LLM by cog-triton ")
    assert all(f"| {check.name} |" in text for check in CHECKS["tensorrt_llm"])


@pytest.mark.parametrize(("fault", "name"), FAULTS.items())
def test_a_seeded_fault_is_found_by_name(accepted, machine, tmp_path, fault, name):
    if name in ("short form", "AWQ"):
        machine.work_dir, kept = tmp_path / "work", machine.work_dir
    try:
        status, report = machine.accept("--only", name, faults=fault)
    finally:
        if name in ("short form", "AWQ"):
            machine.work_dir = kept
    assert [(check["name"], check["status"]) for check in report["checks"]] == [(name, "failed")], report
    assert status == 1


def test_the_texts_of_another_image_are_compared(accepted, machine, tmp_path):
    other = tmp_path / "other.json"
    arguments = ("--only", "other image", "--against", str(other))
    other.write_text(json.dumps(accepted[1]))
    status, report = machine.accept(*arguments)
    assert status == 0, report["checks"]
    texts = {prompt: f"{text}." for prompt, text in accepted[1]["texts"].items()}
    other.write_text(json.dumps(accepted[1] | {"texts": texts}))
    assert machine.accept(*arguments)[0] == 1
