"""A runner's directory: where it can be, and that nothing of it stays."""

from __future__ import annotations

import socket
import sys

import pytest

from runner.lifecycle import run_directory as module
from runner.lifecycle.control import SetupFailed, encode
from runner.lifecycle.program import main
from runner.lifecycle.run_directory import run_directory
from shared.errors import RunDirectoryUnusable


@pytest.fixture(autouse=True)
def place(tmp_path_factory, monkeypatch):
    place = tmp_path_factory.mktemp("t")
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(module, "_ELSEWHERE", ())
    return place


def test_it_is_where_temporary_files_belong_and_goes_at_the_end(place):
    with run_directory() as directory:
        assert directory.parent == place
    assert not list(place.iterdir())


def test_one_that_cannot_be_used_does_not_stay(place, monkeypatch):
    monkeypatch.setattr(module, "_MAX_BYTES", 1)
    with pytest.raises(RunDirectoryUnusable), run_directory():
        pass
    assert not list(place.iterdir())


def test_without_any_place_it_says_which_were_tried(monkeypatch):
    monkeypatch.setenv("TMPDIR", "/proc")
    monkeypatch.setattr(module, "_ELSEWHERE", ("/dev/null", f"/{'a' * 256}"))
    reasons = r"/proc: .*; /dev/null: Not a directory; /a*: File name too long"
    with pytest.raises(RunDirectoryUnusable, match=reasons), run_directory():
        pass


def test_a_process_that_wants_an_engine_is_told_why_there_is_none(monkeypatch, capsys):
    """It says so itself: on stderr, as JSON, or to whoever asked it."""
    monkeypatch.setenv("TMPDIR", "/proc")
    near, far = socket.socketpair()
    with near:
        monkeypatch.setattr(sys, "argv", ["runner.lifecycle", "--caller-fd", str(far.detach())])
        assert main() == 1
        with pytest.raises(RunDirectoryUnusable) as why, run_directory():
            pass
        assert near.recv(1 << 16) == encode(SetupFailed(str(why.value)))
    assert capsys.readouterr() == ("", "")
