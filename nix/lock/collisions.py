"""Which files two wheels of one environment both write; standard library only.

A wheel states its files in RECORD (the binary distribution format of the Python packaging specifications).
Folders may be shared, as namespace packages do. A file may be too when both wheels hold the same bytes, since
then the order of unpacking changes nothing; anything else is a collision.
"""

from __future__ import annotations

import configparser
import csv
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Where the parts of a `.data` folder go, relative to site-packages; commands are told apart by their folder.
_SCHEMES = {"purelib": "", "platlib": "", "scripts": "bin/", "data": "../../../", "headers": "include/"}


def collisions(wheels: Iterable[Path]) -> list[str]:
    """One sentence per path that two wheels write differently, in the order of the paths."""
    writers: dict[str, dict[str, str]] = {}
    for wheel in wheels:
        for path, content in _contents(wheel):
            writers.setdefault(path, {})[wheel.name] = content
    return [
        f"{path} is written by {' and '.join(sorted(by))}, with different contents."
        for path, by in sorted(writers.items())
        if len(by) > 1 and (len(set(by.values())) > 1 or "" in by.values())
    ]


def _contents(wheel: Path) -> Iterator[tuple[str, str]]:
    """The files of a wheel, with what identifies their bytes (empty: not stated)."""
    with zipfile.ZipFile(wheel) as archive:
        record = next(name for name in archive.namelist() if name.endswith(".dist-info/RECORD"))
        for path, digest, _ in csv.reader(archive.read(record).decode().splitlines()):
            yield _installed(path), digest
        commands = record.replace("RECORD", "entry_points.txt")
        if commands in archive.namelist():
            points = configparser.ConfigParser(delimiters="=")
            points.optionxform = str  # type: ignore[assignment] # names of commands keep their case
            points.read_string(archive.read(commands).decode())
            for section in {"console_scripts", "gui_scripts"} & set(points.sections()):
                for name, target in points[section].items():
                    yield f"bin/{name}", target


def _installed(path: str) -> str:
    first, _, rest = path.partition("/")
    if not first.endswith(".data"):
        return path
    scheme, _, rest = rest.partition("/")
    return _SCHEMES.get(scheme, f"{scheme}/") + rest


def main() -> int:
    """`python -m nix.lock.collisions WHEEL...` names every collision; exit status 1 when there is one."""
    found = collisions(Path(name) for name in sys.argv[1:])
    sys.stderr.writelines(f"{sentence}\n" for sentence in found)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
