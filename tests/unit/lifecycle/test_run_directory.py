"""A runner's directory: where it can be, and that nothing of it stays."""

from __future__ import annotations

import fcntl
import os
import shutil

import pytest

from runner.lifecycle import run_directory as module
from runner.lifecycle.run_directory import run_directory
from shared.errors import RunDirectoryUnusable


@pytest.fixture(autouse=True)
def place(tmp_path_factory, monkeypatch):
    place = tmp_path_factory.mktemp("t")
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(module, "_ELSEWHERE", ())
    return place


def test_it_is_for_its_user_alone_and_goes_at_the_end(place):
    with run_directory() as directory:
        (directory / "feed").touch()
        assert directory.parent == place
        assert directory.stat().st_mode & 0o777 == 0o700
    assert not list(place.iterdir())


def test_it_goes_when_the_start_fails(place):
    with pytest.raises(KeyError), run_directory():
        raise KeyError
    assert not list(place.iterdir())


def test_those_of_killed_runners_are_swept_and_no_others(place):
    with run_directory() as one:
        shutil.copytree(one, one.with_name(f"{one.name}-killed"))
        shutil.copytree(one, one.with_name(f"{one.name}-young"))
    killed, young = sorted(place.iterdir())
    # Somebody's checkout, say.
    foreign, another = place / "cog-triton-run-of-mine", place / "another"
    for directory in (foreign, another):
        directory.mkdir()
        (directory / "file").touch()
    (place / "cog-triton-run-link").symlink_to(another)
    with run_directory() as used:
        for directory in (killed, foreign, another, used):
            os.utime(directory, (0, 0))
        with run_directory():
            assert (young.exists(), used.exists()) == (True, True)
            assert not killed.exists()
    assert (another / "file").exists()
    assert (foreign / "file").exists()


def test_without_any_place_it_says_which_were_tried(monkeypatch):
    monkeypatch.setenv("TMPDIR", "/proc")
    monkeypatch.setattr(module, "_ELSEWHERE", ("/dev/null", f"/{'a' * 256}"))
    reasons = r"/proc: .*; /dev/null: Not a directory; /a*: File name too long"
    with pytest.raises(RunDirectoryUnusable, match=reasons), run_directory():
        pass


@pytest.mark.parametrize(("library", "name"), [(shutil, "rmtree"), (fcntl, "flock")])
def test_nothing_stays_when_a_signal_arrives_while_it_is_made_or_removed(place, library, name, monkeypatch):
    really, calls = getattr(library, name), []

    def interrupted(*arguments, **options):
        calls.append(name)
        if len(calls) == 1:
            raise SystemExit
        really(*arguments, **options)

    monkeypatch.setattr(library, name, interrupted)
    with pytest.raises(SystemExit), run_directory():
        pass
    assert list(place.iterdir()) == []
