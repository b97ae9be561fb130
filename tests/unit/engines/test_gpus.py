"""Triton is shown no GPU, and the engine those that it would have seen."""

from __future__ import annotations

import pytest

from runner.engines.gpus import hide_gpus, show_gpus


@pytest.mark.parametrize("environment", [{}, {"CUDA_VISIBLE_DEVICES": ""}, {"CUDA_VISIBLE_DEVICES": "1,0"}])
def test_the_engine_gets_back_what_triton_is_not_shown(environment):
    before = {"PATH": "/bin", **environment}
    hidden = hide_gpus(before)
    assert hidden["CUDA_VISIBLE_DEVICES"] == ""
    show_gpus(hidden)
    assert hidden == before


def test_an_engine_under_a_triton_that_sees_its_gpus_keeps_them():
    environment = {"CUDA_VISIBLE_DEVICES": "2"}
    show_gpus(environment)
    assert environment == {"CUDA_VISIBLE_DEVICES": "2"}


def test_a_rank_keeps_what_its_launcher_has_restored():
    environment = hide_gpus({"CUDA_VISIBLE_DEVICES": "2"})
    show_gpus(environment)
    show_gpus(environment)
    assert environment == {"CUDA_VISIBLE_DEVICES": "2"}
