"""Codes, docs, raises and tests agree: each active code is raised in the source and named by a test, no other one is
raised, docs are fresh.
"""

import ast
import re
from pathlib import Path

from shared.errors import REGISTRY, CogTritonError, State
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


def modules() -> list[Path]:
    folders = ("shared", "builder", "runner", "cli", "demo")
    return [path for folder in folders for path in (PROJECT_ROOT / folder).rglob("*.py")]


def raised_in_python() -> set[str]:
    return set().union(*(raised_in(ast.parse(path.read_text(), path)) for path in modules()))


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


def named_in(tree: ast.AST) -> set[str]:
    """Names that a test module uses, and those of the codes in its texts."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name() | ast.Attribute():
                found.add(named(node))
            case ast.Constant(value=str(text)):
                found.update(of_codes(text))
    return found & KINDS.keys()


def of_codes(text: str) -> set[str]:
    return {REGISTRY[code].name() for code in re.findall(r"\bE\d{4}\b", text) if code in REGISTRY}


def named_by_tests() -> set[str]:
    """Without what only supports tests, or measures. Configs say in comments what is expected of them."""
    folders = [PROJECT_ROOT / "tests" / name for name in ("unit", "integration", "day_one")]
    modules = [path for folder in folders for path in folder.rglob("test_*.py")]
    configs = [path for folder in folders for path in folder.rglob("*.yaml")]
    return set().union(
        *(named_in(ast.parse(path.read_text(), path)) for path in modules),
        *(of_codes(path.read_text()) for path in configs),
    )


def test_every_active_code_is_raised():
    assert ACTIVE - raised() == set()


def test_no_other_code_is_raised():
    assert raised() & KINDS.keys() - ACTIVE == set()


def test_every_active_code_is_named_by_a_test():
    """Those that a request can meet must be met over HTTP besides: tests/conftest.py."""
    assert ACTIVE - named_by_tests() == set()


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


def described(tree: ast.AST) -> list[str]:
    """Of each docstring, what it says from a `raise` on to the end of its paragraph."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    texts = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, kinds)]
    found = [re.search(r"\b[Rr]aises?\b.*", part, re.DOTALL) for text in texts for part in text.split("\n\n")]
    return [match[0] for match in found if match]


def test_docstrings_name_what_is_raised_by_its_class():
    """Ranges stay: `E3100 to E3103`, E41xx."""
    said = [
        f"{path.relative_to(PROJECT_ROOT)}: {sentence}"
        for path in modules()
        for sentence in described(ast.parse(path.read_text(), path))
        if re.search(r"\bE\d{4}\b", re.sub(r"\bE\d{4}\s+to\s+E\d{4}\b", "", sentence))
    ]
    assert said == []


def test_a_name_that_is_only_imported_names_nothing():
    source = """
from shared.errors import EngineNotReady, ModelNotFound
with pytest.raises(ModelNotFound):
    assert errors.ModelGated
assert text.startswith("E2402 ")
"""
    assert named_in(ast.parse(source)) == {"EngineGaveUp", "ModelGated", "ModelNotFound"}
