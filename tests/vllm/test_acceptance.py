"""`cog-triton acceptance` with the real vLLM, on the CPU: all is as assumed, but for GPUs that are not there.

A difference that is seeded is found, by name.
"""

from __future__ import annotations

import pytest

from cli.acceptance import CHECKS
from tests.vllm.acceptance import LAST_FAULT, NOT_AT_FAULT, SERVED_FAULTS

pytestmark = pytest.mark.timeout(1800)


def test_vllm_is_as_assumed(accepted):
    ended = {check["name"]: check["status"] for check in accepted.report["checks"]}
    expected = dict.fromkeys((check.name for check in CHECKS["vllm"]), "passed")
    assert ended == expected | {"GPU and driver": "failed", "other image": "skipped"}, accepted.report
    assert accepted.status == 1


def test_the_report_is_of_vllm(accepted):
    assert accepted.page.startswith("# Acceptance of vLLM by cog-triton ")


@pytest.mark.parametrize(("fault", "name"), [*SERVED_FAULTS.items(), LAST_FAULT])
def test_a_seeded_fault_is_found_by_name(accepted, fault, name):
    assert accepted.faulty[name] == "failed"


def test_what_has_no_fault_is_as_assumed_beside_one_that_has(accepted):
    assert accepted.faulty[NOT_AT_FAULT] == "passed"
