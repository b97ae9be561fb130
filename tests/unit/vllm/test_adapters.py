"""Which adapters the engine core holds: no more than it has room for, and each only once it could be read."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import NamedTuple

import pytest

from runner.engines.vllm.adapters import Adapters
from shared.errors import AdapterUnknown, VllmAdapterInvalid, VllmAdaptersInUse


class LoRARequest(NamedTuple):
    lora_name: str
    lora_int_id: int
    lora_path: str


class Core:
    def __init__(self):
        self.held = {}
        self.broken = self.slow = False

    def call(self, method, argument):
        if method == "remove_lora":
            return self.held.pop(argument)
        if self.slow:
            raise TimeoutError
        if self.broken:
            raise RuntimeError("rank 512 is too high in /srv/adapters/a/adapter_config.json")
        self.held[argument.lora_int_id] = argument
        assert len(self.held) <= 2
        return True


@pytest.fixture(autouse=True)
def vllm(monkeypatch):
    for name in ("vllm", "vllm.lora", "vllm.lora.request"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(sys.modules["vllm.lora.request"], "LoRARequest", LoRARequest, raising=False)


@pytest.fixture
def core():
    return Core()


@pytest.fixture
def adapters(tmp_path, core):
    for name in "abc":
        (tmp_path / name).mkdir()
        (tmp_path / name / "adapter_config.json").write_text("{}")
        (tmp_path / name / "adapter_model.safetensors").write_bytes(b"x")
    return Adapters(tmp_path, 2, core.call)


def names(core):
    return {held.lora_name[0] for held in core.held.values()}


def test_one_is_loaded_once_and_dropped_when_nobody_uses_it(adapters, core):
    first = adapters.use("a", "1")
    assert adapters.use("a", "2") == first
    adapters.use("b", "3")
    with pytest.raises(VllmAdaptersInUse):
        adapters.use("c", "4")
    adapters.left("3")
    adapters.left("3")
    adapters.use("c", "4")
    assert names(core) == {"a", "c"}


def test_the_one_that_was_used_longest_ago_goes_first(adapters, core):
    for number, name in enumerate("aba"):
        adapters.use(name, str(number))
        adapters.left(str(number))
    adapters.use("c", "9")
    assert names(core) == {"a", "c"}


def test_files_that_change_are_another_adapter_with_another_name(adapters, core, tmp_path):
    old = adapters.use("a", "1")
    (tmp_path / "a/adapter_model.safetensors").write_bytes(b"longer")
    with pytest.raises(VllmAdaptersInUse, match="an earlier version of it is still in use"):
        adapters.use("a", "2")
    adapters.left("1")
    new = adapters.use("a", "2")
    assert old.lora_name != new.lora_name
    assert set(core.held) == {new.lora_int_id}


def test_one_that_cannot_be_read_takes_no_place_and_names_no_path(adapters, core, tmp_path):
    core.broken = True
    with pytest.raises(VllmAdapterInvalid) as raised:
        adapters.use("a", "1")
    assert "rank 512" in str(raised.value)
    assert "/srv" not in str(raised.value)
    core.broken = False
    adapters.use("a", "1")
    (tmp_path / "b/adapter_config.json").write_text("[" * 100_000)
    with pytest.raises(VllmAdapterInvalid):
        adapters.use("b", "2")
    (tmp_path / "b/adapter_config.json").write_text("[]")
    with pytest.raises(VllmAdapterInvalid):
        adapters.use("b", "2")


def test_a_core_that_is_slow_is_not_blamed_on_the_adapter(adapters, core):
    core.slow = True
    with pytest.raises(VllmAdaptersInUse, match="the engine core did not load it in time"):
        adapters.use("a", "1")
    core.slow = False
    adapters.use("a", "2")


@pytest.mark.parametrize("name", ["", ".", "..", "none", "/etc", "a/../..", "\0", "x" * 5000])
def test_what_is_not_below_the_folder_is_unknown(adapters, name):
    with pytest.raises(AdapterUnknown):
        adapters.use(name, "1")
