"""Which errors the tests met over HTTP: `--all-errors-met` fails a session that left out one that a request can meet.

An error is met by the fixture `answered`: an HTTP server answered with its whole text, which a test compared.
tests/unit/errors/test_agreement.py asks for the others: each is raised in the source, and named by a test.

`make test` spreads the files over several processes: each tells at its end what it met.
"""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import settings

from shared.errors import REGISTRY, CogTritonError, State

# `make test` tries the same examples each time; `make fuzz` looks for new ones.
settings.register_profile("test", deadline=None, derandomize=True)
settings.register_profile("fuzz", deadline=None, max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "test"))

# A shell starts a job in the background with SIGINT ignored; what the tests start and interrupt would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

MET_OVER_HTTP: set[str] = set()


@pytest.fixture(scope="session", autouse=True)
def weights_cache(tmp_path_factory):
    """Where commands unpack engines when a test does not say where: not in the cache of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEIGHTS_CACHE", str(tmp_path_factory.mktemp("weights")))
        yield


@pytest.fixture(scope="session")
def answered():
    """`answered(text, error)`: an HTTP server answered a request with this text, which is that of `error`."""

    def note(text: str, error: CogTritonError) -> None:
        assert text == str(error)
        MET_OVER_HTTP.add(error.code)

    return note


def pytest_addoption(parser):
    parser.addoption(
        "--all-errors-met", action="store_true", help="fail when no test met an error of requests over HTTP"
    )


def _left_out(config) -> list[str]:
    """The errors that a request can meet, and none of the tests."""
    if not config.getoption("--all-errors-met"):
        return []
    return sorted(
        f"{kind.code} {kind.name()}"
        for kind in REGISTRY.values()
        if kind.state is State.ACTIVE and kind.code[:2] in {"E1", "E2"} and not kind.at_start
        if kind.code not in MET_OVER_HTTP
    )


def pytest_testnodedown(node):
    said = getattr(node, "workeroutput", {})  # nothing, when the process died: the session has failed
    MET_OVER_HTTP.update(said.get("met_over_http", ()))


def pytest_sessionfinish(session, exitstatus):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["met_over_http"] = sorted(MET_OVER_HTTP)
    elif exitstatus == pytest.ExitCode.OK and _left_out(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    if left_out := _left_out(config):
        terminalreporter.section("errors of requests that no test met over HTTP", red=True)
        terminalreporter.write_line("\n".join(left_out))
