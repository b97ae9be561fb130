"""Requests that need a structure or an adapter wait for those who need the same, not for the others."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pytest

from runner.engines.vllm.preparing import Preparing
from runner.protocol.engine import Request, StructuredOutput
from shared.errors import StructuredOutputInvalid

MANY = 24
SECONDS = 10


class Grammars:
    """Tries each structure until it is told to go on."""

    def __init__(self):
        self.may_go_on = threading.Event()
        self.found = {}
        self.tried = []

    def known(self, structure):
        return self.found.get(structure.text)

    def check(self, structure):
        self.tried.append(structure.text)
        assert self.may_go_on.wait(SECONDS)
        if structure.text == "bad":
            raise StructuredOutputInvalid(reason="it is bad")
        return self.found.setdefault(structure.text, f"told {structure.text}")

    def close(self):
        self.may_go_on.set()


class Adapters:
    def use(self, name, core_id):
        return f"{name} for {core_id}"

    def left(self, core_id):
        raise AssertionError(core_id)


@pytest.fixture
def core(monkeypatch):
    """What the engine core is given, and what ends before that; in vLLM's environment there is the real one."""
    told = SimpleNamespace(hold_to=lambda asked, structure: setattr(asked, "structure", structure))
    monkeypatch.setitem(sys.modules, "runner.engines.vllm.requests", told)
    core = SimpleNamespace(given={}, ended={}, news=threading.Condition())

    def note(where, key, value):
        with core.news:
            where[key] = value
            core.news.notify_all()
        return True

    core.grammars = Grammars()
    core.preparing = Preparing(
        core.grammars,
        Adapters(),
        lambda asked: note(core.given, asked.request_id, asked),
        lambda key, output: note(core.ended, key, output),
    )
    yield core
    core.preparing.close()


def submit(core, number, *, structure=None, lora=None):
    request = Request(
        request_id=number,
        input_token_ids=(1,),
        max_tokens=1,
        structured_output=None if structure is None else StructuredOutput("regex", structure),
        lora=lora,
    )
    core.preparing.submit(request, SimpleNamespace(request_id=str(number), structure=None, lora_request=None))


def wait_for(core, holds):
    with core.news:
        assert core.news.wait_for(holds, SECONDS)


def test_an_adapter_does_not_wait_for_the_structures_of_others(core):
    for number in range(MANY):
        submit(core, number, structure=f"[{number}]")
    submit(core, MANY, lora="law")
    wait_for(core, lambda: str(MANY) in core.given)
    assert list(core.given) == [str(MANY)]
    assert core.given[str(MANY)].lora_request == f"law for {MANY}"
    assert core.preparing.waiting == {str(number) for number in range(MANY)}
    core.grammars.may_go_on.set()
    wait_for(core, lambda: len(core.given) == MANY + 1)


def test_a_request_may_need_both(core):
    core.grammars.may_go_on.set()
    submit(core, 1, structure="a", lora="law")
    wait_for(core, lambda: core.given)
    assert (core.given["1"].structure, core.given["1"].lora_request) == ("told a", "law for 1")


def test_what_is_known_is_given_at_once(core):
    core.grammars.found["a"] = "told a"
    submit(core, 1, structure="a")
    submit(core, 2)
    assert (core.given["1"].structure, core.given["2"].structure) == ("told a", None)


def test_a_structure_that_cannot_be_followed_ends_its_request_alone(core):
    core.grammars.may_go_on.set()
    submit(core, 1, structure="bad")
    submit(core, 2, structure="good")
    wait_for(core, lambda: core.given and core.ended)
    assert (list(core.given), core.ended["1"].error.code) == (["2"], "E1105")
    assert "1" not in core.preparing.waiting


def test_nobody_waits_for_a_structure_whose_request_was_cancelled(core):
    for number in range(MANY):
        submit(core, number, structure=f"[{number}]")
    submit(core, MANY, structure="wanted")
    for number in range(1, MANY):
        core.preparing.forget(str(number))
    core.grammars.may_go_on.set()
    wait_for(core, lambda: str(MANY) in core.given)
    assert set(core.grammars.tried) == {"[0]", "wanted"}
