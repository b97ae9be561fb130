"""docs/environment.md: each variable has an example, which the runner takes and which is not what it has anyway."""

from __future__ import annotations

import re

import pytest

from runner.settings import Settings
from shared.layout import PROJECT_ROOT
from tools.docs.environment import OF_THE_BUILDER_TOO, page
from tools.docs.environment_values import EXAMPLES, allowed_values

FIELDS = {str(field.alias): name for name, field in Settings.model_fields.items()}


def test_every_variable_has_an_example():
    assert set(EXAMPLES) == set(FIELDS)


@pytest.mark.parametrize("variable", FIELDS)
def test_the_example_of_a_variable_is_valid_and_no_default(variable):
    settings = Settings.from_environment({variable: EXAMPLES[variable]})
    assert getattr(settings, FIELDS[variable]) != getattr(Settings.from_environment({}), FIELDS[variable])


@pytest.mark.parametrize(
    ("variable", "values"),
    [
        ("SERVER", "`front` or `cog`"),
        ("WEB_PAGE", "true or false"),
        ("END_ID", "whole number, at least -1"),
        ("RESPONSE_TIMEOUT", "number, above 0, at most 1000000000"),
        ("TLS_KEY", "path"),
        ("API_KEYS", "text, a secret"),
        ("TRITON_HTTP_ADDRESS", "`host:port`"),
    ],
)
def test_values_are_told_from_the_type(variable, values):
    assert allowed_values(Settings.model_fields[FIELDS[variable]]) == values
    assert f"| {values} |" in next(
        line for line in page().splitlines() if line.startswith(f"| `{variable}` |")
    )


def test_the_builder_reads_what_the_page_says():
    sources = ("cli/builder_server/__main__.py", "runner/front/addresses.py", "runner/front/browsers.py")
    read = {
        name
        for source in sources
        for name in re.findall(r"settings\.(\w+)", (PROJECT_ROOT / source).read_text())
    }
    of_settings = {variable for variable, name in FIELDS.items() if name in read}
    assert set(OF_THE_BUILDER_TOO) == of_settings | {"ALLOW_MODEL_CODE"}  # which the check of a config reads
