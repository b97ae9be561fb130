"""Codes, docs and raises agree: each active code is raised in the source, no other one is, docs are fresh."""

import ast
import re

import pytest

from shared.errors import REGISTRY, CogTritonError, FixedBy, State, from_text
from shared.layout import PROJECT_ROOT
from tools.docs import errors as docs

KINDS = {kind.name(): kind for kind in REGISTRY.values()}
ACTIVE = {name for name, kind in KINDS.items() if kind.state is State.ACTIVE}
BRIDGE = [path for path in sorted((PROJECT_ROOT / "runner/bridge").iterdir()) if path.suffix in {".c", ".h"}]


def named(node: ast.AST | None) -> str:
    return getattr(node, "attr", getattr(node, "id", ""))


def raised_in(tree: ast.AST) -> set[str]:
    """Names that a module calls, raises, or keeps as the values of a table to choose from."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=target) | ast.Raise(exc=target):
                found.add(named(target))
            case ast.Dict(values=values):
                found.update(map(named, values))
    return found & KINDS.keys()


def raised_in_python() -> set[str]:
    modules = [
        path
        for folder in ("shared", "builder", "runner", "cli", "demo")
        for path in (PROJECT_ROOT / folder).rglob("*.py")
    ]
    return set().union(*(raised_in(ast.parse(path.read_text(), path)) for path in modules))


def in_the_bridge(pattern: str) -> set[str]:
    return {found for path in BRIDGE for found in re.findall(pattern, path.read_text(), re.ASCII)}


def macro(kind: type[CogTritonError]) -> str:
    """The name of an error's text in C: E2401_ENGINE_NOT_READY."""
    return f"{kind.code}_{re.sub('(?<=[a-z])(?=[A-Z])', '_', kind.name()).upper()}"


def raised_in_the_bridge() -> set[str]:
    macros = in_the_bridge(r"\bE\d{4}_\w+")
    return {name for name, kind in KINDS.items() if macro(kind) in macros}


def raised() -> set[str]:
    return raised_in_python() | raised_in_the_bridge()


def test_every_active_code_is_raised():
    assert ACTIVE - raised() == set()


def test_no_other_code_is_raised():
    assert raised() & KINDS.keys() - ACTIVE == set()


def test_codes_in_the_bridge_are_active_ones():
    assert in_the_bridge(r"\bE\d{4}_\w+") <= {macro(KINDS[name]) for name in ACTIVE}
    assert in_the_bridge(r"\bE\d{4}\b") <= {KINDS[name].code for name in ACTIVE}


def test_docs_name_every_code_once():
    rows = re.findall(r"^\| (E\d{4}) \| (\w+) \|", docs.page(), re.MULTILINE)
    assert rows == sorted((kind.code, name) for name, kind in KINDS.items())


def test_the_scan_sees_calls_raises_and_tables():
    source = """
from shared.errors import ModelGated, EngineNotReady, errors
try:
    raise EngineNotReady
except ModelNotFound:
    x = errors.ModelGated(model=1)
table = {401: RevisionNotFound}
"""
    assert raised_in(ast.parse(source)) == {"EngineNotReady", "ModelGated", "RevisionNotFound"}


class TestRecorder:
    @pytest.fixture
    def probe(self, met):
        class Probe(CogTritonError):
            code = "E1999"
            fixed_by = FixedBy.US
            message = "It {what}."
            remedy = "None."

        yield Probe
        met.discard("E1999")
        del REGISTRY["E1999"]

    @staticmethod
    def run_as_product(source: str, **names: object) -> None:
        exec(compile(source, PROJECT_ROOT / "runner/lifecycle/engine_probe.py", "exec"), names)

    def test_an_error_made_by_a_test_is_not_met(self, probe, met):
        probe(what="fails")
        assert "E1999" not in met

    def test_an_error_made_by_product_code_is_met(self, probe, met):
        self.run_as_product("Probe(what='fails')", Probe=probe)
        assert "E1999" in met

    def test_an_error_read_by_a_test_is_not_met(self, probe, met):
        assert from_text(str(probe(what="fails"))) is not None
        assert "E1999" not in met

    def test_an_error_read_by_product_code_is_met(self, probe, met):
        self.run_as_product("from_text('E1999 Probe: x')", from_text=from_text)
        assert "E1999" in met

    def test_an_error_seen_in_a_text_is_met(self, probe, met, saw):
        text = "log: E1999 Probe: It fails. None.\nE1998 Other: x"
        assert saw(text) == text
        assert "E1999" in met
