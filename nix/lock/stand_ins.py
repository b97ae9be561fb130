"""An alternative lock set for machines that cannot reach the publishers of nix/locks/publishers.json.

    python -m nix.lock.stand_ins DIR

writes DIR/files (small files that say what they replace, and do nothing), DIR/simple (an index of the
wheels), DIR/repositories (of git), and DIR/locks (nix/locks with the hashes, commits and places of these).
Images built from it have the shape of the real ones, and a stand-in that is run says so and fails. The bytes
are the same everywhere; nix/locks/stand-ins.json lists them, and is written again if no DIR is named.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import os
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name, parse_wheel_filename

from nix.lock.files import LOCKS, Document, LockProblem, Row, read, write

if TYPE_CHECKING:
    from collections.abc import Mapping

_LISTED = LOCKS / "stand-ins.json"
_WHAT_IT_IS = "a stand-in that holds nothing of the real one"

_FAILS = f'''"""{{what}}: {_WHAT_IT_IS}."""

import sys


def main():
    sys.exit("{{what}} is {_WHAT_IT_IS}; build this image where the publishers can be reached.")


if __name__ == "__main__":
    main()
'''
# Debian's Python in its place, with the packages of the environment that it was started from.
_PYTHON = f"""#!/bin/bash
# CPython 3.12: {_WHAT_IT_IS}, but starts Debian's Python.
environment="${{0%/*}}/../lib/python3.12/site-packages"
PYTHONPATH="$environment${{PYTHONPATH:+:$PYTHONPATH}}" exec /usr/bin/python3.13 "$@"
"""
_EXAMPLES = ("models/core/llama/convert_checkpoint.py", "quantization/quantize.py")
# A commit is the same everywhere if author, time and the machine's settings are.
_GIT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{who}_NAME": "cog-triton" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_EMAIL": "" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_DATE": "2026-01-01T00:00:00Z" for who in ("AUTHOR", "COMMITTER")},
}


def artifacts() -> dict[str, bytes]:
    """The stand-ins, by the names of the files that they replace."""
    made = {}
    for row in _published("artifacts"):
        made[row["file"]] = _MADE[row["name"]](row)
    return made


def listing() -> Document:
    """The content of nix/locks/stand-ins.json."""
    made = artifacts()
    sources = []
    for row in _published("sources"):
        with tempfile.TemporaryDirectory() as scratch:
            commit = write_repository(Path(scratch, "repository"), row)
        sources.append({"name": row["name"], "version": row["version"], "commit": commit})
    return {
        "artifacts": [_stood_in(row, made[row["file"]]) for row in _published("artifacts")],
        "sources": sources,
    }


def write_set(directory: Path) -> None:
    """Write the alternative lock set; `directory` is made, or its contents of these names replaced.

    Raises LockProblem for the folder of the locks that it is made from.
    """
    directory = directory.resolve()
    files, index, locks = directory / "files", directory / "simple", directory / "locks"
    if locks == LOCKS or directory.is_relative_to(LOCKS):
        raise LockProblem(f"{directory} has the locks themselves, or is among them: choose another folder.")
    repositories = directory / "repositories"
    for part in (files, index, locks, repositories):
        shutil.rmtree(part, ignore_errors=True)
    files.mkdir(parents=True)
    index.mkdir()
    shutil.copytree(LOCKS, locks)
    made = artifacts()
    for name, content in made.items():
        (files / name).write_bytes(content)
    replaced = {}
    for row in _published("artifacts"):
        stood_in = {**row, **_stood_in(row, made[row["file"]])}
        if row["index"]:
            stood_in["index"] = index.as_uri()
            _add_to_index(index, files / row["file"], row["name"])
        else:
            stood_in["address"] = f"{files.as_uri()}/{{file}}"
        replaced[row["file"]] = stood_in
    for path in (locks / "publishers.json", *locks.glob("wheels/*.json")):
        write(path, _substituted(read(path), replaced))
    sources = []
    for row in _published("sources"):
        place = repositories / row["name"]
        sources.append({**row, "commit": write_repository(place, row), "repository": place.as_uri()})
    publishers = locks / "publishers.json"
    write(publishers, {**read(publishers), "sources": sources})


def write_repository(place: Path, row: Row) -> str:
    """Make a git repository at `place` that stands in for a row's; return its commit."""
    place.mkdir(parents=True)
    for name in _EXAMPLES:
        script = place / row["folder"] / name
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(_FAILS.format(what=script.name), encoding="utf-8")
        script.chmod(0o755)

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=place, env=os.environ | _GIT, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    git("init", "--quiet", "--initial-branch=main", "--template=")
    git("add", ".")
    git("commit", "--quiet", f"--message={row['name']}: {_WHAT_IT_IS}")
    git("tag", row["tag"])
    return git("rev-parse", "HEAD")


def _published(key: str) -> list[Row]:
    rows: list[Row] = read(LOCKS / "publishers.json")[key]
    return rows


def _stood_in(row: Row, content: bytes) -> Row:
    kept = {column: row[column] for column in ("name", "version", "file")}
    return {**kept, "sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}


def _substituted(document: Document, replaced: Mapping[str, Row]) -> Document:
    """The document with the rows of replaced files changed, in the columns that they have."""
    key = "wheels" if "wheels" in document else "artifacts"
    rows = [{column: replaced.get(row["file"], row)[column] for column in row} for row in document[key]]
    return {**document, key: rows}


def _add_to_index(index: Path, file: Path, name: str) -> None:
    page = index / canonicalize_name(name) / "index.html"
    page.parent.mkdir()
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    page.write_text(
        f'<!DOCTYPE html><a href="{file.as_uri()}#sha256={digest}">{file.name}</a>\n', encoding="utf-8"
    )


def wheel(row: Row, files: Mapping[str, str], commands: str = "") -> bytes:
    """A wheel of some files; `commands` are lines of console_scripts."""
    _, _, _, tags = parse_wheel_filename(row["file"])
    name, version = row["file"].split("-")[:2]
    info = f"{name}-{version}.dist-info"
    members = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {row['name']}\nVersion: {row['version']}\n"
        f"Summary: {_WHAT_IT_IS}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: cog-triton\nRoot-Is-Purelib: false\n"
        + "".join(sorted(f"Tag: {tag}\n" for tag in tags)),
    }
    if commands:
        members[f"{info}/entry_points.txt"] = f"[console_scripts]\n{commands}\n"
    record = "".join(f"{path},{_record_hash(body)},{len(body.encode())}\n" for path, body in members.items())
    members[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    target = io.BytesIO()
    # Stored, so that the bytes do not depend on a zlib.
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for path, body in members.items():
            archive.writestr(zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0)), body)
    return target.getvalue()


def _record_hash(body: str) -> str:
    digest = hashlib.sha256(body.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _tar_gz(files: Mapping[str, str], links: Mapping[str, str]) -> bytes:
    """A gzip that holds a tar in one stored block (RFC 1951, 3.2.4), for the same reason."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path, body in files.items():
            member = tarfile.TarInfo(path)
            member.mode, member.size = 0o755, len(body.encode())
            archive.addfile(member, io.BytesIO(body.encode()))
        for path, goal in links.items():
            member = tarfile.TarInfo(path)
            member.type, member.linkname = tarfile.SYMTYPE, goal
            archive.addfile(member)
    data = target.getvalue()
    header = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
    block = struct.pack("<BHH", 1, len(data), len(data) ^ 0xFFFF)
    return header + block + data + struct.pack("<II", zlib.crc32(data), len(data))


def _tensorrt_llm(row: Row) -> bytes:
    commands = "tensorrt_llm/commands/"
    return wheel(
        row,
        {
            "tensorrt_llm/__init__.py": f'"""TensorRT-LLM: {_WHAT_IT_IS}."""\n\n'
            f'__version__ = "{row["version"]}"\n',
            f"{commands}__init__.py": "",
            f"{commands}build.py": _FAILS.format(what="trtllm-build"),
        },
        "trtllm-build = tensorrt_llm.commands.build:main",
    )


def _module(row: Row) -> bytes:
    module = row["file"].split("-")[0]
    source = f'"""{row["name"]}: {_WHAT_IT_IS}."""\n\n__version__ = "{row["version"]}"\n'
    return wheel(row, {f"{module}/__init__.py": source})


def _python(_: Row) -> bytes:
    links = {"python/bin/python": "python3.12", "python/bin/python3": "python3.12"}
    return _tar_gz({"python/bin/python3.12": _PYTHON}, links)


_MADE = {
    "cpython": _python,
    "tensorrt-llm": _tensorrt_llm,
    "tensorrt-cu13-libs": _module,
    "torch": _module,
    "torchvision": _module,
}


def main() -> None:
    """Without a directory, write the list of the stand-ins; with one, the alternative lock set."""
    parser = argparse.ArgumentParser(
        prog="python -m nix.lock.stand_ins",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("directory", nargs="?", type=Path, metavar="DIR")
    directory = parser.parse_args().directory
    try:
        if directory is None:
            write(_LISTED, listing())
        else:
            write_set(directory)
    except LockProblem as problem:
        sys.exit(str(problem))
    except subprocess.CalledProcessError as failed:
        sys.exit(f"git could not make a repository: {failed.stderr.strip()}")
    except OSError as error:
        sys.exit(f"{error.filename or directory or _LISTED}: {error.strerror}")


if __name__ == "__main__":
    main()
