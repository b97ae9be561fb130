"""A layer's files while it is being made: a directory in which nothing is overwritten by accident."""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path
from typing import IO

from .problem import Problem


class Tree:
    """Paths are relative to the root of the image, without a leading slash."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def directory(self, path: str) -> None:
        place = self._place(path)
        if not place.is_dir():
            place.mkdir()

    def link(self, path: str, target: str) -> None:
        place = self._place(path)
        if place.is_symlink():
            if place.readlink().as_posix() == target:
                return
            raise Problem(f"Two packages have /{path}, with different targets.")
        place.symlink_to(target)

    def file(self, path: str, content: bytes | IO[bytes], *, executable: bool = False) -> None:
        """Write a file; an existing one must be the same. Raises Problem when it is not."""
        place = self._place(path)
        source = io.BytesIO(content) if isinstance(content, bytes) else content
        if os.path.lexists(place):
            if place.is_symlink() or place.read_bytes() != source.read():
                raise Problem(f"Two packages have /{path}, with different contents.")
            return
        with place.open("xb") as file:
            shutil.copyfileobj(source, file, 1 << 20)
        place.chmod(0o755 if executable else 0o644)

    def copy(self, path: str, existing: str) -> None:
        """Add the file `existing` once more."""
        original = self._place(existing)
        with original.open("rb") as content:
            self.file(path, content, executable=os.access(original, os.X_OK))

    def add(self, source: Path, into: str) -> None:
        """All files of a folder, or one file, with their links and executable bits."""
        if not source.is_dir():
            with source.open("rb") as content:
                self.file(into, content, executable=bool(source.stat().st_mode & 0o111))
            return
        for path in sorted(source.rglob("*")):
            name = "/".join(part for part in (into, path.relative_to(source).as_posix()) if part)
            if path.is_symlink():
                self.link(name, path.readlink().as_posix())
            elif path.is_dir():
                self.directory(name)
            else:
                self.add(path, name)

    def _place(self, path: str) -> Path:
        """The location of a path, with its parents made. Raises Problem for one outside the tree."""
        place = self.root / path
        if ".." in Path(path).parts or path.startswith("/"):
            raise Problem(f"A package has the path {path}, which is not inside the image.")
        # Before the others are made: they would be made out there.
        nearest = next(parent for parent in place.parents if parent.is_dir())
        if not nearest.resolve().is_relative_to(self.root):
            raise Problem(f"A package has the path {path} behind a link that leaves the image.")
        place.parent.mkdir(parents=True, exist_ok=True)
        return place
