"""What `make bench` writes to docs/performance.md."""

from __future__ import annotations

from importlib import import_module

import pytest

from tests.performance.bench import GROUPS
from tests.performance.page import section, write_section
from tests.performance.row import Chart, Row

WORDS = "# Performance\n\nWritten by hand.\n\n"
MARK = "<!-- measured: what follows is written by `make bench` -->\n"
GROUP_NAMES = ("first", "second", "third")


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(WORDS + MARK)
    return path


def test_only_the_section_of_the_group_is_written_anew_and_all_keep_their_order(page):
    for group, text in (("third", "old"), ("first", "kept"), ("third", "new")):
        write_section(page, group, GROUP_NAMES, text)

    assert page.read_text() == f"{WORDS}{MARK}\n## First\n\nkept\n\n## Third\n\nnew\n"


def test_a_section_of_a_group_that_is_no_more_goes(page):
    write_section(page, "second", GROUP_NAMES, "old")

    write_section(page, "first", ("first",), "new")

    assert page.read_text() == f"{WORDS}{MARK}\n## First\n\nnew\n"


def test_a_section_has_the_rows_that_miss_their_bound_and_those_that_are_measured_elsewhere():
    found = [
        Row("fast", 0.5, at_most=1),
        Row("slow", 2, "s", at_most=1),
        Row("lost", None, at_most=1),
        Row("curl | tar", None, at_least=0.97, command="measure it | there"),
        Chart("cost", "What it costs", "streams"),
    ]

    assert section("About.", found, "Here.") == (
        "About.\n\n"
        "| figure | measured | bound | |\n|---|---|---|---|\n"
        "| fast | 0.5 | <= 1 |  |\n"
        "| slow | 2 s | <= 1 | missed |\n"
        "| lost | not measured | <= 1 | missed |\n"
        "| curl \\| tar | not here: `measure it \\| there` | >= 0.97 |  |\n\n"
        "![What it costs](figures/cost.svg)\n\n"
        "Here."
    )


@pytest.mark.parametrize("group", GROUPS)
def test_every_group_is_a_module_that_says_what_it_is_about(group):
    module = import_module(f"tests.performance.{group}_rows")

    assert module.__doc__
    assert callable(module.rows)
