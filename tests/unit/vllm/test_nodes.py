"""vLLM on several hosts: what each node is told, and a node that cannot start. The rest is in tests/hosts."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from runner.engines.hosts.settings import FAILURE, HostsSettings
from runner.engines.vllm import nodes
from runner.engines.vllm.nodes import Place, nodes_of
from shared.cog.server import free_port
from shared.errors import HostsMissing
from shared.layout import PROJECT_ROOT


@pytest.fixture
def settings(monkeypatch):
    """This host has two GPUs, and nobody joins."""
    made = HostsSettings(f"127.0.0.1:{free_port()}", gpus=2, seconds=0.1, secret=b"x" * 16)
    for name, value in made.environment().items():
        monkeypatch.setenv(name, value)


def test_one_host_with_gpus_enough_asks_nobody(settings, tmp_path):
    assert nodes_of({"tensor_parallel_size": 2}, tmp_path) is None


def test_one_host_that_was_told_of_no_others_asks_nobody(tmp_path):
    assert nodes_of({"tensor_parallel_size": 16}, tmp_path) is None


def test_it_waits_for_hosts_and_says_which_gpus_are_missing(settings, tmp_path):
    with pytest.raises(HostsMissing, match="GPUs needed: 4; GPUs of this host: 2, of the others: none"):
        nodes_of({"tensor_parallel_size": 2, "pipeline_parallel_size": 2}, tmp_path)


def test_a_node_is_told_its_place():
    assert Place(1, 2, "10.0.0.1", 29501).arguments == {
        "nnodes": 2,
        "node_rank": 1,
        "master_addr": "10.0.0.1",
        "master_port": 29501,
        "distributed_executor_backend": "mp",
    }


def test_vllm_talks_from_the_address_that_the_others_reach(monkeypatch):
    names = ("VLLM_HOST_IP", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "eth7")
    nodes.use_address("127.0.0.1")
    told = {name: os.environ.pop(name, None) for name in names}
    assert told == dict(zip(names, ("127.0.0.1", "lo", "eth7", "lo"), strict=True))


def test_why_a_node_cannot_start_is_written_to_a_file(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"engine": "vllm"}))
    words = [str(tmp_path), "1", "2", "127.0.0.1", "29501"]
    command = [sys.executable, "-m", "runner.engines.vllm.node", *words]
    environment = {**os.environ, FAILURE: str(tmp_path / "failure")}
    ended = subprocess.run(command, cwd=PROJECT_ROOT, env=environment, check=False, timeout=60)
    assert ended.returncode == 1
    assert (tmp_path / "failure").read_text().startswith("E2204 VllmModelIncomplete: ")
