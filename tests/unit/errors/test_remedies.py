"""Remedies that help wherever their errors are met."""

from __future__ import annotations

import pytest

from shared.errors import (
    UNEXPECTED,
    AdapterUnknown,
    EngineStartFailed,
    VllmCacheTooSmall,
    VllmGpuMemoryInUse,
)


@pytest.mark.parametrize(
    ("reason", "fix"),
    [
        (
            "the engine's config.json cannot be read",
            "a file of the engine is at fault, build or download it again",
        ),
        ("it was not ready in time", "not ready in time, raise ENGINE_START_TIMEOUT"),
        (UNEXPECTED, "the log of the engine process says more"),
    ],
)
def test_an_engine_that_does_not_start_is_not_only_sent_to_the_log(reason, fix):
    assert fix in str(EngineStartFailed(reason=reason))


def test_a_gpu_of_which_all_is_to_be_used_already_is_not_asked_for_more():
    assert "raise `gpu_memory_utilization` if it is below 1" in str(VllmCacheTooSmall(reason="x"))


def test_no_other_process_is_blamed_when_more_is_asked_for_than_a_gpu_can_have_free():
    reason = "Free memory on device cuda:0 (138.9/139.8 GiB) is less than desired (1.0, 139.8 GiB)"
    assert "Other processes hold" not in str(VllmGpuMemoryInUse(reason=reason))
    assert "lower `gpu_memory_utilization`" in str(VllmGpuMemoryInUse(reason=reason))


def test_adapters_are_not_looked_up_where_openais_api_is_not_served():
    assert "where OpenAI's API is served, /v1/models lists them" in str(AdapterUnknown(name="x"))
