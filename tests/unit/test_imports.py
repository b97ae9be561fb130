"""Who may import whom, folder by folder: docs/architecture.md has the table."""

import ast

import pytest

from shared.layout import PROJECT_ROOT

# A folder, and what nothing in it imports.
FORBIDDEN = {
    "shared": {"builder", "runner", "cli", "demo", "tools", "tests"},
    "builder": {"runner", "cli", "demo", "tools", "tests"},
    "runner": {"builder", "cli", "demo", "tools", "tests"},
    "cli": {"demo", "tools", "tests"},
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
