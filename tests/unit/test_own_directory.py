"""A directory for one process: that nothing of it stays, and nothing of others goes."""

import errno
import fcntl
import os
import shutil

import pytest

from shared.own_directory import own_directory

PREFIX = "ours-"


def test_it_is_for_its_user_alone_and_goes_at_the_end(tmp_path):
    with own_directory(PREFIX, tmp_path) as directory:
        (directory / "feed").touch()
        assert directory.parent == tmp_path
        assert directory.stat().st_mode & 0o777 == 0o700
    assert not list(tmp_path.iterdir())


def test_it_goes_when_the_start_fails(tmp_path):
    with pytest.raises(KeyError), own_directory(PREFIX, tmp_path):
        raise KeyError
    assert not list(tmp_path.iterdir())


def test_those_of_killed_processes_are_swept_and_no_others(tmp_path):
    with own_directory(PREFIX, tmp_path) as one:
        shutil.copytree(one, tmp_path / f"{PREFIX}killed")
    # Somebody's checkout, say.
    foreign, another = tmp_path / f"{PREFIX}of-mine", tmp_path / "another"
    for directory in (foreign, another):
        directory.mkdir()
        (directory / "file").touch()
    (another / ".cog-triton").touch()
    (tmp_path / f"{PREFIX}link").symlink_to(another)
    with own_directory(PREFIX, tmp_path) as used:
        assert not (tmp_path / f"{PREFIX}killed").exists()
        with own_directory(PREFIX, tmp_path):
            assert used.exists()
    assert (another / "file").exists()
    assert (foreign / "file").exists()


def test_one_on_a_file_system_without_locks_is_used_and_left_alone(tmp_path, monkeypatch):
    def unable(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", unable)
    with own_directory(PREFIX, tmp_path) as used, own_directory(PREFIX, tmp_path):
        assert used.exists()
    assert not used.exists()


@pytest.mark.parametrize(("library", "name"), [(shutil, "rmtree"), (fcntl, "flock")])
def test_nothing_stays_when_a_signal_arrives_while_it_is_made_or_removed(
    tmp_path, library, name, monkeypatch
):
    really, calls = getattr(library, name), []

    def interrupted(*arguments, **options):
        calls.append(name)
        if len(calls) == 1:
            raise SystemExit
        really(*arguments, **options)

    monkeypatch.setattr(library, name, interrupted)
    with pytest.raises(SystemExit), own_directory(PREFIX, tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []
