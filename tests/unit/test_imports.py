"""Who may import whom, folder by folder: docs/architecture.md has the table."""

import ast
import re

import pytest

from shared.layout import PROJECT_ROOT

# A folder, and what nothing in it imports.
FORBIDDEN = {
    "shared": {"builder", "runner", "cli", "demo", "tools", "tests"},
    "builder": {"runner", "cli", "demo", "tools", "tests"},
    "runner": {"builder", "cli", "demo", "tools", "tests"},
    "cli": {"demo", "tools", "tests"},
    "demo": {"tools", "tests"},
    "tools": {"tests"},
    # A check looks at engines and sources; they know nothing of it.
    "builder/engines": {"builder.check", "builder.pipeline", "builder.plan"},
    "builder/sources": {"builder.check", "builder.engines", "builder.pipeline", "builder.plan"},
}


def imported(path):
    for node in ast.walk(ast.parse(path.read_text(), path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_nothing_imports_what_stands_above_it(folder):
    modules = sorted((PROJECT_ROOT / folder).rglob("*.py"))
    assert modules
    wrong = [
        f"{path.relative_to(PROJECT_ROOT)}: {name}"
        for path in modules
        for name in imported(path)
        for forbidden in FORBIDDEN[folder]
        if f"{name}.".startswith(f"{forbidden}.")
    ]
    assert wrong == []


def parts_of_shared():
    """Each part of shared/ that the page lists, and what it may import from there: its row's parts, too."""
    page = (PROJECT_ROOT / "docs/architecture.md").read_text()
    listed = {}
    for cell, allowed in re.findall(r"^\| (`shared/[^|]+) \|[^|]+\| ([^|]+) \|$", page, re.MULTILINE):
        parts = re.findall(r"`shared/(\w+)(?:\.py)?`", cell)
        listed |= {part: {*parts, *re.findall(r"\w+", allowed)} for part in parts}
    return listed


def test_the_page_lists_what_the_parts_of_shared_import():
    folder = PROJECT_ROOT / "shared"
    imports = {}
    for path in folder.rglob("*.py"):
        part = path.relative_to(folder).parts[0].removesuffix(".py")
        found = (name.split(".")[1] for name in imported(path) if name.startswith("shared."))
        imports.setdefault(part, set()).update(found)
    del imports["__init__"]
    listed = parts_of_shared()
    assert listed.keys() == imports.keys()
    wrong = {f"{part}: {name}" for part in listed for name in imports[part] & listed.keys() - listed[part]}
    assert wrong == set()


def test_only_sources_import_the_hubs_library():
    """They look at its settings first: with some, its import fails. The doctor looks at them itself."""
    found = {
        path.relative_to(PROJECT_ROOT).parent.as_posix()
        for folder in ("builder", "cli", "runner", "shared")
        for path in (PROJECT_ROOT / folder).rglob("*.py")
        if any(name.startswith("huggingface_hub") for name in imported(path))
    }
    assert found == {"builder/sources", "cli/doctor"}
