"""A front with an engine that steps by a clock."""

from __future__ import annotations

import pytest

from tests.support.front import running, write_engine

TEMPLATE = (
    "{% for m in messages %}{% if m.content == 'for ever' %}"
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}{% endif %}"
    "{{ m.role }} {{ m.content }} {% endfor %}{{ more }}"
)


@pytest.fixture(scope="session")
def engine_directory(tmp_path_factory):
    return write_engine(tmp_path_factory.mktemp("front") / "engine", TEMPLATE)


@pytest.fixture(scope="module")
def front(engine_directory):
    """One front for the tests of a module."""
    with running(engine_directory, step_seconds=0.005) as server:
        yield server
