"""Prune everything below an unpacked site-packages folder, and keep the wheels' RECORD files correct.

Format of RECORD: the binary distribution format of the Python packaging specifications.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from .library import is_library, prune_library, replace_file
from .report import Outcome, TreeReport
from .unneeded import builder_resources, copies, for_compilers, of_newer_gpus, of_others

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping


def prune_wheel_tree(
    root: Path,
    sm: int | None,
    *,
    builder: Collection[int] = (),
    cut: bool = False,
    keep_debug: bool = False,
    dry_run: bool = False,
) -> TreeReport:
    """Prune every shared library below `root` for `sm` (None: none of them), and rewrite RECORD.

    Files that are not needed are removed: TensorRT's builder resources, except what the `builder` of engines
    for these architectures needs; with an `sm`, what is for another version of CUDA, for AMD's GPUs or for
    newer ones, and what only compilers read. Copies of a library become links. Raises Refused when there is
    no builder resource for one of them, and OSError.
    """
    report = TreeReport(sm)
    files = {path.relative_to(root).as_posix(): path for path in sorted(_files(root))}
    unneeded = builder_resources(files, builder)
    if sm is not None:
        unneeded |= of_others(files) | of_newer_gpus(files, sm) | for_compilers(files)
    removed = {files.pop(name) for name in sorted(unneeded)}
    for path in sorted(removed):
        report.removed[path.relative_to(root).as_posix()] = path.stat().st_size
        if not dry_run:
            _remove(path, root)
    if sm is not None:
        for name in _link_copies(files, dry_run=dry_run):
            report.linked[name] = files.pop(name).stat().st_size
    changed = set()
    for path in files.values():
        if sm is None or not is_library(path):
            continue
        library = prune_library(path, sm, cut=cut, keep_debug=keep_debug, dry_run=dry_run)
        library.path = path.relative_to(root).as_posix()
        if library.outcome is Outcome.PRUNED:
            changed.add(path)
        if library.has_device_code or library.outcome is not Outcome.UNCHANGED:
            report.libraries.append(library)
    records = [
        path for path in files.values() if path.name == "RECORD" and path.parent.suffix == ".dist-info"
    ]
    for path in [] if dry_run else records:
        if _rewrite_record(path, changed, removed):
            report.records.append(path.relative_to(root).as_posix())
    return report


def _files(root: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(root, onerror=_refuse):
        for name in names:
            path = Path(folder, name)
            if not path.is_symlink() and path.is_file():
                yield path


def _refuse(error: OSError) -> NoReturn:
    """A folder that cannot be read is not passed over."""
    raise error


def _link_copies(files: Mapping[str, Path], *, dry_run: bool) -> list[str]:
    """Turn copies into links to the one with the longest name; return what is a link now."""
    linked = []
    for group in copies({name: path.stat().st_size for name, path in files.items()}):
        kept = max(group, key=len)
        content = _digest(files[kept])
        for name in group:
            if name != kept and _digest(files[name]) == content:
                linked.append(name)
                if not dry_run:
                    files[name].unlink()
                    files[name].symlink_to(files[kept].name)
    return linked


def _remove(path: Path, root: Path) -> None:
    """Remove a file, and the folders that become empty."""
    path.unlink()
    for folder in path.parents:
        if folder == root or any(folder.iterdir()):
            return
        folder.rmdir()


def _rewrite_record(record: Path, changed: set[Path], removed: set[Path]) -> bool:
    root = record.parent.parent
    rows = []
    differs = False
    for row in csv.reader(io.StringIO(record.read_text(encoding="utf-8"), newline="")):
        path = Path(os.path.normpath(root / row[0])) if row else None
        if path and path.is_symlink():
            path = path.parent / path.readlink()
        if path in removed:
            differs = True
        elif path in changed:
            differs = True
            rows.append([row[0], _digest(path), str(path.stat().st_size)])
        else:
            rows.append(row)
    if differs:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows(rows)
        replace_file(record, text.getvalue().encode())
    return differs


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
