"""`cog-triton acceptance` with the real vLLM, on the CPU: all is as assumed, but for GPUs that are not there.

A difference that is seeded is found, by name.
"""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from typing import TYPE_CHECKING

import pytest

from cli.acceptance import CHECKS
from cli.acceptance.server import COMMAND
from shared.layout import PROJECT_ROOT, Layout
from tests.support.driver import stand_in_driver
from tests.support.processes import MARK, wait_gone
from tests.vllm.conftest import ENVIRONMENT, PYTHON
from tests.vllm.model import ARGUMENTS, MAX_SEQ_LEN, MODEL

if TYPE_CHECKING:
    from pathlib import Path

FAULTS = {"another version": "import", "renamed outputs": "interface", "no abort": "cancel"}
_PYTHON = """\
#!/bin/sh
PYTHONPATH={faults}:$PYTHONPATH exec {python} "$@"
"""


class Machine:
    """One whose driver tells of two GPUs, with vLLM for CPUs."""

    def __init__(self, directory: Path) -> None:
        self.home = directory / "home"
        program = self.home / "engines/vllm/bin/python"
        program.parent.mkdir(parents=True)
        program.write_text(_PYTHON.format(faults=PROJECT_ROOT / "tests/support/vllm_faults", python=PYTHON))
        program.chmod(0o755)
        for part in ("triton", "bridge"):
            (self.home / part).symlink_to(Layout.current().home / part)
        self.libraries = directory / "libraries"
        self.libraries.mkdir()
        stand_in_driver(self.libraries)
        self.config = directory / "config.yaml"
        config = {
            "engine": "vllm",
            "model": str(MODEL),
            "max_model_len": MAX_SEQ_LEN,
            "engine_args": ARGUMENTS,
        }
        self.config.write_text(json.dumps(config))
        self.work_dir = directory / "work"
        self.report = directory / "report.md"

    def accept(self, *arguments: str, fault: str = "") -> tuple[int, dict]:
        """Run the command with this fault; its status and its JSON. No process may be left."""
        mark = uuid.uuid4().hex
        environment = {
            **os.environ,
            **ENVIRONMENT,
            "COG_TRITON_HOME": str(self.home),
            "LD_LIBRARY_PATH": str(self.libraries),
            "LD_PRELOAD": str(self.libraries / "limits.so"),
            "ENGINE_ENVIRONMENT": f"{MARK},VLLM_FAULT",
            "VLLM_FAULT": fault,
            MARK: mark,
        }
        always = ["acceptance", str(self.config), "--work-dir", str(self.work_dir), "--json"]
        done = subprocess.run(
            [*COMMAND, *always, *arguments],
            cwd=PROJECT_ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        assert wait_gone(mark) == {}
        return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    return Machine(tmp_path_factory.mktemp("acceptance"))


@pytest.fixture(scope="module")
def accepted(machine):
    return machine.accept("--report", str(machine.report))


@pytest.mark.timeout(1800)
def test_vllm_is_as_assumed(accepted):
    status, report = accepted
    ended = {check["name"]: check["status"] for check in report["checks"]}
    expected = dict.fromkeys((check.name for check in CHECKS["vllm"]), "passed")
    assert ended == expected | {"GPU and driver": "failed", "other image": "skipped"}, report["checks"]
    assert status == 1


def test_the_report_is_of_vllm(accepted, machine):
    assert machine.report.read_text().startswith("# Acceptance of vLLM by cog-triton ")


@pytest.mark.parametrize(("fault", "name"), FAULTS.items())
def test_a_seeded_fault_is_found_by_name(accepted, machine, fault, name):
    status, report = machine.accept("--only", name, fault=fault)
    assert [(check["name"], check["status"]) for check in report["checks"]] == [(name, "failed")]
    assert status == 1


def test_other_tokens_than_vllms_own_are_found(accepted, machine):
    kept = machine.work_dir / "references.json"
    answers = json.loads(kept.read_text())
    answers[0]["tokens"][3] += 1
    kept.write_text(json.dumps(answers))
    assert machine.accept("--only", "greedy")[0] == 1
