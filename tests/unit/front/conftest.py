"""A front with an engine that steps by a clock."""

from __future__ import annotations

import json

import pytest

from runner.front import resolver
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


# As if the system's resolver gave these answers: an address, the number of an error, or none at all.
_RESOLVING = """
import json, runpy, socket, time

system = socket.getaddrinfo

def getaddrinfo(host, *arguments, **options):
    with open({file!r}) as file:
        answer = json.load(file).get(host, host)
    if answer == "stuck":
        time.sleep(60)
    if isinstance(answer, int):
        raise socket.gaierror(answer, "")
    return system(answer, *arguments, **options)

socket.getaddrinfo = getaddrinfo
runpy.run_path({program!r}, run_name="__main__")
"""


class _Names(dict[str, str | int]):
    def __init__(self, file):
        self._file = file

    def __setitem__(self, name, answer):
        super().__setitem__(name, answer)
        self._file.write_text(json.dumps(self))


@pytest.fixture
def names(tmp_path, monkeypatch):
    """What names lead to: an address, the number of an error, or "stuck": no answer comes."""
    program, file = tmp_path / "resolve.py", tmp_path / "names.json"
    file.write_text("{}")
    program.write_text(_RESOLVING.format(file=str(file), program=str(resolver._PROGRAM)))
    monkeypatch.setattr(resolver, "_PROGRAM", program)
    return _Names(file)
