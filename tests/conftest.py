"""Which error codes the tests met: `--all-errors-met` fails a session that left an active one out.

A code is met when product code constructs its error in this process, reads it out of the text of another
process, or when a test hands such a text to the fixture `saw`. An error that a test constructs is not met.

A code that a request can meet must also be met over HTTP: in an answer whose whole text a test compared
(the fixture `answered`).

`make test` spreads the files over several processes: each tells at its end what it met.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from shared.errors import REGISTRY, CogTritonError, State, base

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = tuple(f"{ROOT / folder}/" for folder in ("shared", "builder", "runner", "cli", "demo"))

# `make test` tries the same examples each time; `make fuzz` looks for new ones.
settings.register_profile("test", deadline=None, derandomize=True)
settings.register_profile("fuzz", deadline=None, max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "test"))

MET: set[str] = set()
MET_OVER_HTTP: set[str] = set()


def _new(cls, *_args, **_details):
    """Stands in for `CogTritonError.__new__`, through which every error of ours passes."""
    caller = sys._getframe(1)
    if caller.f_code is base.from_text.__code__:
        caller = sys._getframe(2)
    if caller.f_code.co_filename.startswith(PRODUCT):
        MET.add(cls.code)
    return Exception.__new__(cls)


CogTritonError.__new__ = _new  # type: ignore[method-assign]


@pytest.fixture
def met() -> set[str]:
    """The codes met so far in this session."""
    return MET


@pytest.fixture
def saw():
    """`saw(text)`: note the coded errors in what another process wrote, and give the text back."""

    def note(text: str) -> str:
        for code, name in base._CODED_TEXT.findall(text):
            if code in REGISTRY and REGISTRY[code].name() == name:
                MET.add(code)
        return text

    return note


@pytest.fixture
def answered(saw):
    """`answered(text, error)`: an HTTP server answered a request with this text, which is that of `error`."""

    def note(text: str, error: CogTritonError) -> None:
        assert saw(text) == str(error)
        MET_OVER_HTTP.add(error.code)

    return note


def pytest_addoption(parser):
    parser.addoption(
        "--all-errors-met", action="store_true", help="fail when no test met one of the active error codes"
    )


def _left_out(config) -> dict[str, list[str]]:
    """What to complain about: the codes under each heading."""
    if not config.getoption("--all-errors-met"):
        return {}
    active = {kind for kind in REGISTRY.values() if kind.state is State.ACTIVE}
    of_requests = {kind for kind in active if kind.code[:2] in {"E1", "E2"} and not kind.at_start}
    missing = {
        "active errors that no test met": {kind for kind in active if kind.code not in MET},
        "errors of requests that no test met over HTTP": {
            kind for kind in of_requests if kind.code not in MET_OVER_HTTP
        },
    }
    return {
        title: sorted(f"{kind.code} {kind.name()}" for kind in kinds)
        for title, kinds in missing.items()
        if kinds
    }


def pytest_testnodedown(node):
    said = getattr(node, "workeroutput", {})  # nothing, when the process died: the session has failed
    MET.update(said.get("met", ()))
    MET_OVER_HTTP.update(said.get("met_over_http", ()))


def pytest_sessionfinish(session, exitstatus):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["met"] = sorted(MET)
        session.config.workeroutput["met_over_http"] = sorted(MET_OVER_HTTP)
        return
    if exitstatus == pytest.ExitCode.OK and _left_out(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    for title, kinds in _left_out(config).items():
        terminalreporter.section(title, red=True)
        terminalreporter.write_line("\n".join(kinds))
