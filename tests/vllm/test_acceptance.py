"""`cog-triton acceptance` with the real vLLM, on the CPU: all is as assumed, but for GPUs that are not there.

A difference that is seeded is found, by name.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.acceptance import CHECKS
from tests.vllm.acceptance import LAST_FAULT, NOT_AT_FAULT, SERVED_FAULTS

pytestmark = pytest.mark.timeout(1800)


# The wheel for CPUs has a library for each kind of them, of which vLLM loads one.
FOR_AVX512 = "_C.abi3.so: it ends the process; _C_AVX512.abi3.so: it ends the process"


def test_vllm_is_as_assumed(accepted):
    checks = {check["name"]: check for check in accepted.report["checks"]}
    expected = dict.fromkeys((check.name for check in CHECKS["vllm"]), "passed")
    expected |= {"GPU and driver": "failed", "other image": "skipped"}
    if "avx512f" not in Path("/proc/cpuinfo").read_text():
        expected["libraries"] = "failed"
        assert checks["libraries"]["found"] == FOR_AVX512
    others = [check for name, check in checks.items() if check["status"] != expected.get(name)]
    assert not others, json.dumps(others, indent=1)
    assert checks.keys() == expected.keys()
    assert accepted.status == 1


def test_the_report_is_of_vllm(accepted):
    assert accepted.page.startswith("# Acceptance of vLLM by cog-triton ")


@pytest.mark.parametrize(("fault", "name"), [*SERVED_FAULTS.items(), LAST_FAULT])
def test_a_seeded_fault_is_found_by_name(accepted, fault, name):
    assert accepted.faulty[name] == "failed"


def test_what_has_no_fault_is_as_assumed_beside_one_that_has(accepted):
    assert accepted.faulty[NOT_AT_FAULT] == "passed"
