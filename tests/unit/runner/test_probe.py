"""A hung engine shows."""

from __future__ import annotations

import itertools
import threading

import pytest

from runner.lifecycle import probe
from runner.lifecycle.probe import Probe
from shared.errors import TritonTimeout


@pytest.fixture
def asked(monkeypatch):
    """`asked(ask, token_count)`: `is_alive` after the probe has looked three times."""
    monkeypatch.setattr(probe, "_INTERVAL_SECONDS", 0.001)

    def run(ask, token_count) -> bool:
        looked = threading.Semaphore(0)

        def count() -> int:
            looked.release()
            return token_count()

        it = Probe(ask, count)
        it.start()
        for _ in range(4):
            assert looked.acquire(timeout=10)
        it.stop()
        return it.is_alive

    return run


def hang():
    raise TritonTimeout(seconds=5)


def test_an_engine_that_gives_a_token_is_alive(asked):
    assert asked(lambda: None, lambda: 0)


def test_an_engine_that_gives_none_is_not(asked):
    assert not asked(hang, lambda: 0)


def test_an_engine_whose_tokens_flow_is_not_asked(asked):
    assert asked(hang, itertools.count().__next__)
