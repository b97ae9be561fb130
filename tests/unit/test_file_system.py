"""File systems that are full, or read-only, in ways that their free bytes and permissions do not show."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from shared.file_system import filled, is_read_only


@pytest.mark.parametrize(
    ("inodes", "left", "told"),
    [
        (1000, 3, "filled {}, which had 2.5 MB free"),
        (0, 0, "filled {}, which had 2.5 MB free"),  # it has as many as it needs
        (1000, 0, "used up the inodes of {}, as `df -i` shows: it has no room for another file"),
    ],
)
def test_what_has_run_out(tmp_path, monkeypatch, inodes, left, told):
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_files=inodes, f_favail=left))
    assert filled(tmp_path, 2_500_000) == told.format(tmp_path)


@pytest.mark.parametrize(("flags", "told"), [(os.ST_RDONLY | os.ST_NOSUID, True), (os.ST_NOSUID, False)])
def test_whether_anybody_may_write(tmp_path, monkeypatch, flags, told):
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=flags))
    assert is_read_only(tmp_path) is told
