"""What vLLM's processes find in their environment."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from runner.engines.vllm.environment import vllm_environment
from shared.home import SCRATCH

SOCKETS = "VLLM_RPC_BASE_PATH"


@pytest.fixture
def environment(monkeypatch):
    """os.environ, as it was again afterwards."""
    monkeypatch.setattr(os, "environ", dict(os.environ))
    os.environ.pop(SOCKETS, None)
    return os.environ


@pytest.fixture
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("t")


@pytest.mark.parametrize(("length", "fits"), [(70, True), (71, False)])
def test_files_are_where_the_runner_removes_them_and_sockets_if_their_paths_fit(
    environment, folder, length, fits
):
    scratch = folder / ((length - len(f"{folder}/")) * "a")
    scratch.mkdir()
    environment[SCRATCH] = str(scratch)
    with vllm_environment() as failures:
        assert environment.get(SOCKETS) == (str(scratch) if fits else None)
        assert failures.parent.parent == scratch
    assert not list(scratch.iterdir())


def test_without_a_runner_they_are_where_temporary_files_are(environment):
    environment.pop(SCRATCH, None)
    with vllm_environment() as failures:
        assert SOCKETS not in environment
        assert failures.parent.parent == Path(tempfile.gettempdir())


def test_the_operator_says_where_the_sockets_are(environment, folder):
    environment |= {SCRATCH: str(folder), SOCKETS: "/sockets"}
    with vllm_environment():
        assert environment[SOCKETS] == "/sockets"
