"""Prune one shared library: read, decide, write a new file beside it, and put that in its place."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from . import device, elf, layout
from .cut import holes as holes_of
from .refused import Refused
from .report import LibraryReport, Outcome
from .source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .device import Copy
    from .elf import Elf
    from .layout import Layout

# How a pruned library is marked, in a section that is not loaded.
MARKER = ".cog_triton.pruned"


def prune_library(
    path: Path, sm: int, *, cut: bool = False, keep_debug: bool = False, dry_run: bool = False
) -> LibraryReport:
    """Leave only the device code for `sm` (86 for compute capability 8.6) in a shared library, in place.

    With `cut`, the removed code takes no space in the file, if possible; else it becomes zeros. The file is
    replaced completely or not at all, and keeps its mode. Raises OSError.
    """
    report = LibraryReport(str(path), size_before=0, size_after=0)
    try:
        with _opened(path) as source:
            report.size_before = report.size_after = source.size
            _prune(path, source, sm, report, cut=cut, keep_debug=keep_debug, dry_run=dry_run)
    except Refused as refused:
        report.outcome, report.reason, report.size_after = Outcome.REFUSED, str(refused), report.size_before
    return report


def list_library(path: Path) -> dict[str, tuple[int, int]]:
    """Device code by target (sm_86, compute_80): how many pieces, bytes. Raises Refused, OSError."""
    found: dict[str, tuple[int, int]] = {}
    with _opened(path) as source:
        for container in device.read(source, elf.parse(source)):
            for entry in container.entries:
                count, size = found.get(entry.target, (0, 0))
                found[entry.target] = (count + 1, size + entry.size)
    return found


def is_library(path: Path) -> bool:
    """Whether it is an ELF file: only those are examined. Raises OSError."""
    with path.open("rb") as file:
        return file.read(4) == elf.MAGIC


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file completely or not at all; it keeps its mode. Raises OSError."""
    with _replacing(path) as file, os.fdopen(os.dup(file), "wb") as stream:
        stream.write(content)


@contextmanager
def _opened(path: Path) -> Iterator[Source]:
    # A named pipe is not waited for.
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        yield Source(file)
    finally:
        os.close(file)


def _prune(
    path: Path, source: Source, sm: int, report: LibraryReport, *, cut: bool, keep_debug: bool, dry_run: bool
) -> None:
    library = elf.parse(source)
    marker = _marker(source, library, sm)
    code, holes = _selected(source, library, sm, report, cut=cut)
    report.device_before, report.device_after = dict(code.before), dict(code.after)
    report.containers, report.left_whole = len(code.containers), code.left_whole
    dropped = set() if keep_debug else layout.debug_sections(library)
    if not code.is_changed and not dropped:
        return
    described = max(end for _, end in _described(library))
    if source.zeros_end(described, source.size) < source.size:
        raise Refused("bytes after the end of the last section")
    names_section = library.sections[library.names_index]
    names = source.read(names_section.offset, names_section.size)
    new = layout.lay_out(library, dropped, marker if code.is_changed else None, names, holes)
    if new.size > source.size + elf.PAGE:
        raise Refused("sections overlap in the file")
    new.written += [(new.new_offset(at), content) for at, content in code.patches]
    report.outcome, report.size_after = Outcome.PRUNED, new.size
    report.cut = sum(end - start for start, end in holes)
    report.debug_removed = sum(library.sections[index].file_size for index in dropped)
    if not dry_run:
        with _replacing(path) as file:
            _write(source, new, _copies(library, code), file)


def _selected(
    source: Source, library: Elf, sm: int, report: LibraryReport, *, cut: bool
) -> tuple[device.Device, list[tuple[int, int]]]:
    """What stays, and what is left out of the file."""
    if cut:
        try:
            code = device.select(source, library, sm, pack=True)
            if code.is_changed:
                return code, holes_of(library, code)
        except Refused as refused:
            report.reason = f"not cut: {refused}"
    return device.select(source, library, sm), []


def _marker(source: Source, library: Elf, sm: int) -> tuple[str, bytes] | None:
    """The marker to add, if there is none. Raises Refused when the library was pruned for another GPU."""
    content = f"sm_{sm}\n".encode()
    section = library.named(MARKER)
    if section is None:
        return MARKER, content
    found = source.read(section.offset, section.size)
    if found != content:
        raise Refused(f"pruned before, for {found.decode(errors='replace').strip()}; begin with the original")
    return None


def _copies(library: Elf, code: device.Device) -> list[Copy]:
    """Everything but device code unchanged, and device code as selected; in the order of the old layout."""
    copies = []
    at = 0
    others = sorted([*((section.offset, section.end) for section in code.sections), *code.blanks])
    for start, end in others:
        copies.append(device.Copy(at, at, start - at))
        at = end
    copies.append(device.Copy(at, at, max(end for _, end in _described(library)) - at))
    return sorted([*copies, *code.copies], key=lambda copy: copy.to)


def _described(library: Elf) -> Iterator[tuple[int, int]]:
    """The parts of the file that headers describe."""
    yield from ((start, end) for start, end, _ in library.tables)
    yield from ((load.offset, load.end) for load in library.loads)
    yield from ((section.offset, section.end) for section in library.sections if section.type)


@contextmanager
def _replacing(path: Path) -> Iterator[int]:
    """A new file that takes the place, mode and owner of the one at `path` if nothing fails."""
    before = path.stat()
    file, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        try:
            yield file
            os.fchmod(file, before.st_mode & 0o7777)
            if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
                os.fchown(file, before.st_uid, before.st_gid)
        finally:
            os.close(file)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink()
        raise


def _write(source: Source, new: Layout, copies: list[Copy], file: int) -> None:
    os.ftruncate(file, new.size)
    for extent in new.extents:
        for copy in copies:
            start, end = max(copy.to, extent.start), min(copy.to + copy.size, extent.end)
            if start < end:
                _send(
                    source, copy.start + start - copy.to, end - start, file, extent.to + start - extent.start
                )
    for at, content in new.written:
        os.pwrite(file, content, at)


def _send(source: Source, start: int, size: int, out: int, to: int) -> None:
    os.lseek(out, to, os.SEEK_SET)
    while size:
        sent = os.sendfile(out, source.file, start, size)
        if not sent:
            raise Refused("the file became shorter while it was being read")
        start += sent
        size -= sent
