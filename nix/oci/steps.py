"""The steps that make up a layer's files: JSON objects whose `do` names a function here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import debian, native, wheel
from .problem import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .tree import Tree

_CERTIFICATES = "usr/share/ca-certificates"
_BUNDLE = "etc/ssl/certs/ca-certificates.crt"
# Where Debian's OpenSSL looks by default. They belong to the package `openssl`, which is left out.
_TRUSTED = {"usr/lib/ssl/cert.pem": f"/{_BUNDLE}", "usr/lib/ssl/certs": "/etc/ssl/certs"}


def take(step: dict[str, Any], tree: Tree) -> list[dict[str, Any]]:
    """Run one step; return what it pruned (see `_prune`)."""
    arguments = dict(step)
    return _STEPS[arguments.pop("do")](tree, **arguments) or []


def _debian(tree: Tree, packages: list[str]) -> None:
    debian.merge_usr(tree)
    for package in packages:
        debian.unpack(Path(package), tree)


def _certificates(tree: Tree) -> None:
    """What ca-certificates makes when it is installed: all authorities in one file, and the link to it."""
    authorities = sorted((tree.root / _CERTIFICATES).rglob("*.crt"))
    tree.file(_BUNDLE, b"".join(path.read_bytes().rstrip(b"\n") + b"\n" for path in authorities))
    for path, target in _TRUSTED.items():
        tree.link(path, target)


def _environment(
    tree: Tree, place: str, interpreter: str, version: str, wheels: list[str], left_out: list[str]
) -> None:
    wheel.make_environment(tree, place, interpreter, version)
    for path in wheels:
        wheel.install(tree, Path(path), place, version, left_out)


def _extract(tree: Tree, place: str, wheels: list[str], wanted: list[str]) -> None:
    for path in wheels:
        wheel.extract(tree, Path(path), place, wanted)


def _archive(tree: Tree, source: str, into: str, strip: int) -> None:
    """The files of a tar, without its first `strip` folders."""
    with tarfile.open(source) as archive:
        for member in archive:
            inside = "/".join(member.name.split("/")[strip:])
            if not inside:
                continue
            path = f"{into}/{inside}"
            if member.issym():
                tree.link(path, member.linkname)
            elif member.islnk():
                tree.copy(path, f"{into}/{'/'.join(member.linkname.split('/')[strip:])}")
            elif member.isreg():
                content = archive.extractfile(member)
                assert content is not None
                tree.file(path, content, executable=bool(member.mode & 0o111))


def _files(tree: Tree, source: str, into: str) -> None:
    tree.add(Path(source), into)


def _directories(tree: Tree, paths: list[str]) -> None:
    for path in paths:
        tree.directory(path)


def _link(tree: Tree, path: str, target: str) -> None:
    tree.link(path, target)


def _bytecode(
    tree: Tree, places: list[str], seldom: list[str], interpreter: str, version: str, packages: list[str]
) -> None:
    native.compile_modules(
        tree,
        places,
        seldom,
        interpreter=interpreter,
        version=version,
        packages=[Path(path) for path in packages],
    )


def _loader_cache(tree: Tree, packages: list[str]) -> None:
    native.cache_libraries(tree, [Path(path) for path in packages])


def _prune(tree: Tree, program: str, options: list[str], place: str, version: str) -> list[dict[str, Any]]:
    """Remove the device code of other GPUs from the environment at `place`.

    Returns a row for each library with device code and each file (or folder of files) that takes no space any
    more: its `path` below site-packages, its `size` and its `device` code in bytes, [before, after], and the
    `reason` why it was refused, or what has become of it.
    """
    site = tree.root / wheel.site_packages(place, version)
    environment = {**os.environ, "PYTHONPATH": program, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "prune", *options, "--report", "json", "--tree", str(site)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise Problem(f"The device code could not be pruned ({' '.join(options)}); the reason is above.")
    (report,) = json.loads(done.stdout)
    return [
        {"path": path, "size": [size, 0], "device": [0, 0], "reason": reason}
        for sizes, reason in ((report["removed"], "left out"), (report["linked"], "a copy, now a link"))
        for path, size in _by_folder(sizes)
    ] + [
        {
            "path": library["path"],
            "size": [library["size_before"], library["size_after"]],
            "device": [sum(library["device_before"].values()), sum(library["device_after"].values())],
            "reason": library["reason"] if library["outcome"] == "refused" else "",
        }
        for library in report["libraries"]
        if library["device_before"] or library["outcome"] == "refused"
    ]


def _by_folder(sizes: dict[str, int]) -> Iterator[tuple[str, int]]:
    """Thousands of headers as one row: files in a folder two levels deep are counted together."""
    folders: dict[str, list[str]] = {}
    for path in sizes:
        folders.setdefault("/".join(path.split("/")[:2]), []).append(path)
    for folder, paths in folders.items():
        name = paths[0] if len(paths) == 1 else f"{folder} ({len(paths)} files)"
        yield name, sum(sizes[path] for path in paths)


_STEPS: dict[str, Callable[..., list[dict[str, Any]] | None]] = {
    "debian": _debian,
    "certificates": _certificates,
    "environment": _environment,
    "extract": _extract,
    "archive": _archive,
    "files": _files,
    "directories": _directories,
    "link": _link,
    "bytecode": _bytecode,
    "loader_cache": _loader_cache,
    "prune": _prune,
}
