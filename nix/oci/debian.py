"""Unpack Debian packages into a root file system, without running their scripts.

Format: deb(5), an ar archive that holds control.tar.* and data.tar.*.
"""

from __future__ import annotations

import fnmatch
import io
import tarfile
from typing import TYPE_CHECKING

from .problem import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .tree import Tree

_MAGIC = b"!<arch>\n"
_HEADER = 60
# Nobody reads these in a container. Copyright files stay, as the licences require.
_DROPPED = (
    "usr/share/doc/*",
    "usr/share/man/*",
    "usr/share/info/*",
    "usr/share/locale/*",
    "usr/share/lintian/*",
    "usr/share/bug/*",
    "usr/lib/python3*/test/*",
    "usr/lib/python3*/ensurepip/*",
    "usr/lib/python3*/idlelib/*",
    "usr/lib/python3*/config-*/*",  # to embed Python: a library and how it was made
)
_KEPT = "usr/share/doc/*/copyright"
_MERGED = ("bin", "sbin", "lib", "lib64")


def merge_usr(tree: Tree) -> None:
    """Make the links by which /bin is /usr/bin, and so on, as packages expect."""
    for name in _MERGED:
        tree.directory(f"usr/{name}")
        tree.link(name, f"usr/{name}")


def unpack(package: Path, tree: Tree) -> None:
    """Add the files of a package, and its control data where scanners look for it (status.d)."""
    for name, data in members(package):
        kind = name.partition(".tar")[0]
        if kind not in {"control", "data"}:
            continue
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            if kind == "control":
                _note(archive, tree)
            else:
                _add(archive, tree)


def members(package: Path) -> Iterator[tuple[str, bytes]]:
    """The members of the ar archive, with their contents. Raises Problem when it is not one."""
    with package.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise Problem(f"{package.name} is not a Debian package.")
        while len(header := file.read(_HEADER)) == _HEADER:
            name, size = header[:16].decode().strip().rstrip("/"), int(header[48:58])
            yield name, file.read(size)
            file.read(size % 2)


def _note(archive: tarfile.TarFile, tree: Tree) -> None:
    control = archive.extractfile("./control")
    assert control is not None
    text = control.read()
    name = next(line for line in text.decode().splitlines() if line.startswith("Package: ")).split()[1]
    tree.file(f"var/lib/dpkg/status.d/{name}", text)


def _add(archive: tarfile.TarFile, tree: Tree) -> None:
    for member in archive:
        path = member.name.removeprefix("./").rstrip("/")
        if path in {"", "."} or _is_dropped(path):
            continue
        if member.isdir():
            tree.directory(path)
        elif member.issym():
            tree.link(path, member.linkname)
        elif member.islnk():
            tree.copy(path, member.linkname.removeprefix("./"))
        elif member.isreg():
            content = archive.extractfile(member)
            assert content is not None
            tree.file(path, content, executable=bool(member.mode & 0o111))


def _is_dropped(path: str) -> bool:
    return any(fnmatch.fnmatch(path, pattern) for pattern in _DROPPED) and not fnmatch.fnmatch(path, _KEPT)
