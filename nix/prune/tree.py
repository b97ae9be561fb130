"""Prune everything below an unpacked site-packages folder, and keep the wheels' RECORD files true.

Format of RECORD: the binary distribution format of the Python packaging specifications.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from .library import is_library, prune_library, replace_file
from .refused import Refused
from .report import Outcome, TreeReport

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

# One file per GPU architecture since TensorRT 10.10, and more of them for engines that will run on Windows.
_BUILDER_RESOURCE = re.compile(r"libnvinfer_builder_resource(?:_(?P<target>[a-z0-9_]+))?\.so(?:\.\d+)*")


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

    TensorRT's builder resources are removed, except what the `builder` of engines for these architectures
    needs. Raises Refused when there is none for one of them, and OSError.
    """
    report = TreeReport(sm)
    removed, files = _without_resources(sorted(_files(root)), builder)
    for path in removed:
        report.removed[path.relative_to(root).as_posix()] = path.stat().st_size
        if not dry_run:
            path.unlink()
    changed = set()
    for path in files:
        if sm is None or not is_library(path):
            continue
        library = prune_library(path, sm, cut=cut, keep_debug=keep_debug, dry_run=dry_run)
        library.path = path.relative_to(root).as_posix()
        if library.outcome is Outcome.PRUNED:
            changed.add(path)
        if library.has_device_code or library.outcome is not Outcome.UNCHANGED:
            report.libraries.append(library)
    records = [path for path in files if path.name == "RECORD" and path.parent.suffix == ".dist-info"]
    for path in [] if dry_run else records:
        if _rewrite_record(path, changed, set(removed)):
            report.records.append(path.relative_to(root).as_posix())
    return report


def _files(root: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            if not path.is_symlink() and path.is_file():
                yield path


def _without_resources(files: list[Path], builder: Collection[int]) -> tuple[list[Path], list[Path]]:
    """Which builder resources go, and the files that stay."""
    resources = {path: match["target"] for path in files if (match := _BUILDER_RESOURCE.fullmatch(path.name))}
    own = {f"sm{sm}" for sm in builder}
    targets = {target for target in resources.values() if target and target.startswith("sm")}
    if targets and (missing := own - targets):
        raise Refused(
            f"TensorRT has no builder resource for {', '.join(sorted(missing))} here, "
            f"only for {', '.join(sorted(targets))}"
        )
    wanted = {None, "ptx", *own} if builder else set()
    removed = [path for path, target in resources.items() if target not in wanted]
    return removed, [path for path in files if path not in set(removed)]


def _rewrite_record(record: Path, changed: set[Path], removed: set[Path]) -> bool:
    root = record.parent.parent
    rows = []
    differs = False
    for row in csv.reader(io.StringIO(record.read_text(encoding="utf-8"), newline="")):
        path = Path(os.path.normpath(root / row[0])) if row else None
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
