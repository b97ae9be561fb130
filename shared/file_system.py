"""What a file system may lack, besides bytes and permissions; standard library only."""

from __future__ import annotations

import os
from stat import S_ISVTX
from typing import TYPE_CHECKING

from shared.sizes import readable

if TYPE_CHECKING:
    from pathlib import Path


def filled(place: Path, free: int) -> str:
    """What was done to `place`, which had so many bytes free and is full: `filled /tmp, which had ...`.

    Some file systems run out of inodes, of which each file takes one, before they run out of bytes.
    """
    found = os.statvfs(place)
    if found.f_files and not found.f_favail:
        return f"used up the inodes of {place}, as `df -i` shows: it has no room for another file"
    return f"filled {place}, which had {readable(free)} free"


def is_read_only(folder: Path) -> bool:
    """Whether nobody may write there, whatever the permissions."""
    return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)


def may_be_replaced(path: Path) -> bool:
    """Whether this user may, in a folder such as /tmp."""
    folder, user = path.parent.stat(), os.geteuid()
    return not folder.st_mode & S_ISVTX or user in (0, folder.st_uid, path.stat().st_uid)
