"""A silenced check says why: on the same line, or in a comment above it."""

import re
import subprocess
import tomllib

import pytest

from shared.layout import PROJECT_ROOT

SILENCED = re.compile(
    r"#\s*(?:noqa|type: ignore|mypy: ignore-errors|shellcheck disable|pragma: no cover)\b(.*)"
)
# The codes, and whatever is between them and the reason.
CODES = re.compile(r"[=:]?\s*(?:\[[\w, -]+\]|[A-Z]+\d+(?:,\s*[A-Z]+\d+)*)?\s*(?:#|--?|\()?\s*")


def without_reason(line: str) -> bool:
    """Whether a check is silenced here, and nobody says why: not even in two words."""
    found = SILENCED.search(line)
    return found is not None and len(re.findall(r"[A-Za-z']{2,}", CODES.sub("", found[1], count=1))) < 2


def tracked() -> list[str]:
    asked = ["git", "ls-files", "*.py", "*.toml", "*.yml", "ci", ".ci", "nix"]
    said = subprocess.run(asked, cwd=PROJECT_ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in said.splitlines() if (PROJECT_ROOT / name).is_file()]


def lines_without_reason(name: str) -> list[str]:
    lines = ["", *(PROJECT_ROOT / name).read_text(errors="replace").splitlines()]
    return [
        f"{name}:{number}: {line.strip()}"
        for number, line in enumerate(lines)
        if without_reason(line) and not re.match(r"\s*# (?!noqa|type:|shellcheck)", lines[number - 1])
    ]


def test_every_check_that_is_silenced_in_a_line_has_its_reason():
    names = [name for name in tracked() if name != "tests/unit/ci/test_reasons.py"]
    assert [line for name in names for line in lines_without_reason(name)] == []


def test_every_check_that_is_silenced_everywhere_has_its_reason():
    """In pyproject.toml: a line for each, with the reason behind it or above it."""
    text = (PROJECT_ROOT / "pyproject.toml").read_text()
    lint = tomllib.loads(text)["tool"]["ruff"]["lint"]
    lines = text[text.index("[tool.ruff.lint]") :].splitlines()
    for silenced in [*lint["ignore"], *lint["per-file-ignores"]]:
        (place,) = [at for at, line in enumerate(lines) if re.match(rf'\s*"{re.escape(silenced)}"', line)]
        assert re.search(r"# \S+ \S+", lines[place]) or lines[place - 1].startswith("# "), silenced


@pytest.mark.parametrize(
    ("line", "silent"),
    [
        ("x = 1  # noqa: S310", True),
        ("x = 1  # noqa: S310, F401", True),
        ("x = 1  # noqa: S310 - likewise", True),
        ("x = 1  # noqa: S310 - our own address", False),
        ("x = 1  # type: ignore[arg-type]", True),
        ("x = 1  # type: ignore[arg-type] # typer's types", False),
        ("# shellcheck disable=SC2086", True),
        ("# shellcheck disable=SC2086 # these are lists of words", False),
        ("x = 1  # nothing is silenced", False),
    ],
)
def test_what_counts_as_a_reason(line, silent):
    assert without_reason(line) == silent
