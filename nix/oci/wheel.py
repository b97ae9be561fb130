"""Unpack wheels, unmodified: into an environment that Python starts from, or as plain folders.

    python3 -m oci.wheel WHEEL DIRECTORY

Format: the binary distribution format of the Python packaging specifications.
"""

from __future__ import annotations

import configparser
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from .problem import Problem
from .tree import Tree

if TYPE_CHECKING:
    from collections.abc import Iterator

_SCRIPT = """#!/{python}
import sys
from {module} import {function}
sys.exit({call}())
"""


def site_packages(place: str, version: str) -> str:
    """Where the environment at `place` keeps its packages."""
    return f"{place}/lib/python{version}/site-packages"


def make_environment(tree: Tree, place: str, interpreter: str, version: str) -> None:
    """Make a virtual environment at `place` (no leading slash) for an `interpreter` (absolute path)."""
    tree.file(
        f"{place}/pyvenv.cfg",
        f"home = {PurePosixPath(interpreter).parent}\n"
        f"include-system-site-packages = false\nversion = {version}\n".encode(),
    )
    for name in ("python", "python3", f"python{version}"):
        tree.link(f"{place}/bin/{name}", interpreter)


def install(tree: Tree, wheel: Path, place: str, version: str, left_out: list[str]) -> None:
    """Add a wheel to the environment at `place`, with the commands that it declares.

    The paths `left_out`, relative to site-packages, are omitted.
    """
    site = site_packages(place, version)
    if tarfile.is_tarfile(wheel):
        _install_sources(tree, wheel, site)
        return
    schemes = {
        "purelib": site,
        "platlib": site,
        "scripts": f"{place}/bin",
        "data": place,
        "headers": f"{place}/include/python{version}",
    }
    with zipfile.ZipFile(wheel) as archive:
        for member, parts in _files(archive):
            if member.filename in left_out:
                continue
            if parts[0].endswith(".data"):
                if parts[1] not in schemes:
                    raise Problem(f"{wheel.name} installs into {parts[1]}, which is unknown here.")
                path = "/".join([schemes[parts[1]], *parts[2:]])
                _add(
                    tree,
                    archive,
                    member,
                    path,
                    script=f"/{place}/bin/python" if parts[1] == "scripts" else "",
                )
            else:
                _add(tree, archive, member, f"{site}/{'/'.join(parts)}")
            if parts[0].endswith(".dist-info") and parts[1:] == ["entry_points.txt"]:
                _commands(tree, archive.read(member).decode(), place)


def _install_sources(tree: Tree, archive: Path, site: str) -> None:
    """Add the modules of a source distribution without anything to compile, as building it would."""
    with tarfile.open(archive) as sources:
        members = {member.name.partition("/")[2]: member for member in sources if member.isreg()}
        metadata = sources.extractfile(members["PKG-INFO"])
        assert metadata is not None
        text = metadata.read()
        fields = dict(line.split(": ", 1) for line in text.decode().splitlines() if ": " in line)
        name = f"{fields['Name'].replace('-', '_')}-{fields['Version']}"
        tree.file(f"{site}/{name}.dist-info/METADATA", text)
        for path, member in members.items():
            if f"{path.partition('/')[0]}/__init__.py" in members:
                content = sources.extractfile(member)
                assert content is not None
                tree.file(f"{site}/{path}", content)


def extract(tree: Tree, wheel: Path, place: str, wanted: list[str]) -> None:
    """Add the `wanted` files of a wheel, and those below the `wanted` folders, without installing it."""
    with zipfile.ZipFile(wheel) as archive:
        for member, parts in _files(archive):
            # The contents of purelib and platlib belong with the rest.
            inside = parts[2:] if parts[0].endswith(".data") else parts
            path = "/".join(inside)
            if not wanted or any(f"{path}/".startswith(f"{one}/") for one in wanted):
                _add(tree, archive, member, PurePosixPath(place, path).as_posix())


def _files(archive: zipfile.ZipFile) -> Iterator[tuple[zipfile.ZipInfo, list[str]]]:
    for member in archive.infolist():
        if not member.is_dir():
            yield member, member.filename.split("/")


def _add(tree: Tree, archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: str, script: str = "") -> None:
    executable = bool(script) or bool(member.external_attr >> 16 & 0o111)
    with archive.open(member) as content:
        if script and archive.read(member).startswith(b"#!python"):
            _, _, rest = archive.read(member).partition(b"\n")
            tree.file(path, f"#!{script}\n".encode() + rest, executable=True)
        else:
            tree.file(path, content, executable=executable)


def _commands(tree: Tree, text: str, place: str) -> None:
    declared = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    declared.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
    declared.read_string(text)
    if not declared.has_section("console_scripts"):
        return
    for name, target in declared["console_scripts"].items():
        module, _, call = target.partition("[")[0].strip().partition(":")
        function = call.partition(".")[0]
        script = _SCRIPT.format(python=f"{place}/bin/python", module=module, function=function, call=call)
        tree.file(f"{place}/bin/{name}", script.encode(), executable=True)


if __name__ == "__main__":
    destination = Path(sys.argv[2])
    destination.mkdir(parents=True, exist_ok=True)
    extract(Tree(destination.resolve()), Path(sys.argv[1]), "", [])
