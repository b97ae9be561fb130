"""Reports in files: refused before a run if they cannot be written, and whole or as they were."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.perf.command import Plan, perf
from cli.perf.plan import Prompts
from cli.perf.targets import Ask
from cli.report_file import check_report, write_report
from shared.errors import OutputRefused
from tests.integration.test_full_disk import NAMESPACE


@pytest.fixture
def full(monkeypatch):
    def refuse(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)


def test_a_check_leaves_nothing(tmp_path):
    check_report(tmp_path / "new.md")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("none/new.md", "No such file"),
        ("", "Is a directory"),
        ("x" * 300, "name too long"),
        ("a/b", "Not a dir"),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path, name, reason):
    (tmp_path / "a").touch()
    for act in (check_report, lambda path: write_report(path, "x")):
        with pytest.raises(OutputRefused, match=reason):
            act(tmp_path / name)


def test_another_users_in_a_folder_such_as_tmp_is_refused_at_once(tmp_path, monkeypatch):
    (tmp_path / "old.md").touch()
    tmp_path.chmod(0o1777)
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(OutputRefused, match="it is another user's"):
        check_report(tmp_path / "old.md")


def test_on_a_full_disk_the_earlier_one_stays_whole(tmp_path, full):
    (tmp_path / "old.md").write_text("whole")
    with pytest.raises(OutputRefused, match="No space left"):
        write_report(tmp_path / "old.md", "new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("old.md", "whole")]


def test_a_link_stays_one_and_a_device_stays_a_device(tmp_path):
    (tmp_path / "link.md").symlink_to("real.md")
    (tmp_path / "null").symlink_to(os.devnull)
    for name in ("link.md", "link.md", "null"):
        check_report(tmp_path / name)
        write_report(tmp_path / name, "new")
    assert (tmp_path / "link.md").readlink() == Path("real.md")
    assert (tmp_path / "real.md").read_text() == "new"
    assert Path(os.devnull).is_char_device()


def test_one_that_is_mounted_by_itself_is_written_to(tmp_path):
    """As `podman run --volume report.md:/report.md` does it: such a file cannot be replaced."""
    (tmp_path / "report.md").touch()
    mount = (
        'mount -t tmpfs tmpfs "$1" && touch "$1/new" && mount --bind "$1/new" "$2" && shift 2 && exec "$@"'
    )
    write = "import sys; from pathlib import Path; from cli.report_file import check_report, write_report; "
    write += "one = Path(sys.argv[1]); check_report(one); write_report(one, 'new'); print(one.read_text())"
    (tmp_path / "elsewhere").mkdir()
    places = [str(tmp_path / "elsewhere"), str(tmp_path / "report.md")]
    command = [*NAMESPACE, "sh", "-c", mount, "sh", *places, sys.executable, "-c", write, places[1]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("new\n", "")


def test_a_measurement_does_not_begin_without_a_place_for_its_report(tmp_path):
    plan = Plan("http://127.0.0.1:1", [], Prompts(["x"]), Ask(5), report=tmp_path / "none/report.html")
    with pytest.raises(OutputRefused):
        perf(plan, as_json=True)
