"""`python3 -m prune`: see docs/pruning.md."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from .library import list_library, prune_library
from .refused import Refused
from .report import LibraryReport, Outcome, TreeReport
from .tree import prune_wheel_tree

_MB = 1_000_000
_ARCHITECTURES = range(50, 200)


def main(arguments: list[str]) -> int:
    """Status 0 when every FILE could be handled, 1 when one was refused, 2 for bad usage."""
    try:
        return _list(arguments[1:]) if arguments[:1] == ["list"] else _prune(arguments)
    except Refused as refused:
        problem = str(refused)
    except OSError as error:
        problem = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
    _tell(problem)
    return 1


def _tell(problem: str) -> None:
    print(f"prune: {problem}", file=sys.stderr)


def _list(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python3 -m prune list", description="Device code in libraries, by architecture."
    )
    parser.add_argument("file", nargs="+", type=Path)
    status = 0
    for path in parser.parse_args(arguments).file:
        try:
            found = list_library(path)
        except (Refused, OSError) as error:
            _tell(f"{path}: {_reason(error)}")
            status = 1
            continue
        print(f"{path}:")
        for target, (count, size) in sorted(found.items(), key=lambda row: -row[1][1]):
            print(f"  {target:14}{count:7} {size / _MB:10.1f} MB")
    return status


def _reason(error: Refused | OSError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _sm(text: str) -> int:
    """86, as an argument. A typing error would cost a library all of its device code."""
    if not text.isdecimal() or int(text) not in _ARCHITECTURES:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a compute capability written without its dot, such as 86"
        )
    return int(text)


def _prune(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python3 -m prune",
        description="Leave only one GPU architecture's device code in shared libraries, in place.",
        epilog="python3 -m prune list FILE...: show the device code of libraries.",
    )
    parser.add_argument("--sm", type=_sm, help="compute capability without the dot: 86")
    parser.add_argument("--tree", type=Path, action="append", default=[], help="a site-packages folder")
    parser.add_argument(
        "--builder",
        type=_sm,
        nargs="+",
        default=[],
        metavar="SM",
        help="keep TensorRT's builder resources for these in a --tree; without --sm, touch nothing else",
    )
    parser.add_argument("--cut", action="store_true", help="leave removed code out of the file, if possible")
    parser.add_argument("--keep-debug", action="store_true", help="keep debug sections and symbol tables")
    parser.add_argument("--dry-run", action="store_true", help="only report what would be done")
    parser.add_argument("--report", choices=["text", "json"], default="text")
    parser.add_argument("file", nargs="*", type=Path)
    options = parser.parse_args(arguments)
    if not options.file and not options.tree:
        parser.error("give a FILE, or --tree DIR")
    if options.sm is None and (options.file or not options.builder):
        parser.error("--sm is missing")
    how = {"cut": options.cut, "keep_debug": options.keep_debug, "dry_run": options.dry_run}
    reports = [prune_wheel_tree(root, options.sm, builder=options.builder, **how) for root in options.tree]
    if options.file:
        files = TreeReport(options.sm, [_pruned(path, options.sm, how) for path in options.file])
        reports.append(files)
    if options.report == "json":
        print(json.dumps([report.as_dict() for report in reports], indent=1))
    else:
        for report in reports:
            _show(report)
    return int(
        any(one.outcome is Outcome.REFUSED for one in reports[-1].libraries) if options.file else False
    )


def _pruned(path: Path, sm: int, how: dict[str, bool]) -> LibraryReport:
    """What was done to a file, or why nothing could be: the report has it beside the others."""
    try:
        return prune_library(path, sm, **how)
    except OSError as error:
        return LibraryReport(str(path), 0, 0, Outcome.REFUSED, _reason(error))


def _show(report: TreeReport) -> None:
    for path, size in report.removed.items():
        print(f"{size / _MB:9.1f} -> {0:9.1f} MB  {path}: removed")
    for path, size in report.linked.items():
        print(f"{size / _MB:9.1f} -> {0:9.1f} MB  {path}: a copy, now a link")
    for library in report.libraries:
        print(f"{library.size_before / _MB:9.1f} -> {library.size_after / _MB:9.1f} MB  {_line(library)}")


def _line(library: LibraryReport) -> str:
    before, after = sum(library.device_before.values()), sum(library.device_after.values())
    parts = [f"{library.path}: {library.outcome}"]
    if library.reason:
        parts.append(library.reason)
    if library.has_device_code:
        parts.append(f"device code {before / _MB:.1f} -> {after / _MB:.1f} MB")
    if library.left_whole:
        parts.append(f"containers left whole: {library.left_whole}")
    if library.cut:
        parts.append(f"{library.cut / _MB:.1f} MB cut")
    if library.debug_removed:
        parts.append(f"debug {library.debug_removed / _MB:.1f} MB removed")
    return ", ".join(parts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
