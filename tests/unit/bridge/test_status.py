"""The status page, as the runner uses it."""

from __future__ import annotations

import struct

import pytest

from runner.protocol.feed import EngineState
from runner.protocol.status import SLOT_COUNT, StatusPage


@pytest.fixture
def page(tmp_path):
    page = StatusPage.create(tmp_path / "status")
    yield page
    page.close()


def test_it_says_what_the_bridge_wrote(page, tmp_path):
    with (tmp_path / "status").open("r+b") as file:
        file.write(struct.pack("<5I", 0x31425443, 2, 4711, 3, 17))
    assert (page.engine_state, page.engine_pid, page.restarts, page.in_flight) == (
        EngineState.RESTARTING,
        4711,
        3,
        17,
    )


def test_before_a_bridge_came_there_is_no_engine(page):
    assert (page.engine_state, page.engine_pid) == (EngineState.STARTING, None)


def test_what_is_consumed_stands_at_the_slot(page, tmp_path):
    slot = page.acquire_slot()
    slot.consumed(5)
    assert struct.unpack_from("<I", (tmp_path / "status").read_bytes(), 4096 + 4 * slot.index) == (5,)


def test_a_cancelled_slot_says_so(page, tmp_path):
    slot = page.acquire_slot()
    slot.cancel()
    assert struct.unpack_from("<I", (tmp_path / "status").read_bytes(), 4096 + 4 * slot.index) == (
        0xFFFFFFFF,
    )


def test_an_acquired_slot_begins_at_zero(page, tmp_path):
    slot = page.acquire_slot()
    slot.consumed(5)
    slot.release()
    again = page.acquire_slot()
    assert again.index == slot.index
    assert struct.unpack_from("<I", (tmp_path / "status").read_bytes(), 4096 + 4 * slot.index) == (0,)


def test_each_slot_is_given_once(page):
    slots = [page.acquire_slot() for _ in range(SLOT_COUNT)]
    assert sorted(slot.index for slot in slots) == list(range(SLOT_COUNT))
    assert page.acquire_slot() is None


def test_a_page_of_an_earlier_run_is_made_empty(page, tmp_path):
    page.acquire_slot().consumed(9)
    other = StatusPage.create(tmp_path / "status")
    other.close()
    assert (tmp_path / "status").read_bytes() == bytes(8192)
