"""nix/locks/wheels/*.json: which file of each package an image installs."""

from __future__ import annotations

import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from packaging.utils import parse_wheel_filename
from uv import find_uv_bin

from nix.lock.environments import PLATFORM, Environment, markers, tags
from nix.lock.files import Document, LockProblem, Row, Shape
from nix.lock.requirements import Pin, pins
from shared.programs import run

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

UNKNOWN: Shape = {"wheels": {"file": str, "sha256": str | None}}
KNOWN: Shape = {"wheels": {"sha256": str | None, "size": int | None}}


@dataclass(frozen=True, slots=True)
class IndexFile:
    """A file as its index lists it; few indexes state the size (bytes)."""

    name: str
    sha256: str
    size: int | None = None


def choose(pin: Pin, files: Iterable[IndexFile], environment: Environment) -> IndexFile:
    """The wheel that pip would install in an image. Raises LockProblem when none fits."""
    order = {tag: place for place, tag in enumerate(tags(environment.python))}
    offered = list(files)
    allowed = [file for file in offered if file.sha256 in pin.sha256]
    fitting = [
        (min(order[tag] for tag in usable), file.name, file)
        for file in allowed
        if file.name.endswith(".whl") and (usable := parse_wheel_filename(file.name)[3] & order.keys())
    ]
    if fitting:
        return min(fitting)[2]
    if pin.name in environment.sources and allowed:
        return allowed[0]
    if offered and not allowed:
        raise LockProblem(
            f"On the index, no file of {pin.name} {pin.version} has a sha256 of the requirement file: the "
            "files were replaced, or this is a different index. Find out why before you trust it."
        )
    raise LockProblem(
        f"{pin.name} {pin.version} has no wheel for Python {environment.python} on {PLATFORM}; "
        "pin another version."
    )


def document(
    environment: Environment,
    requirements: str,
    indexed: Mapping[str, Sequence[IndexFile]],
    previous: Document | None,
    published: Sequence[Row] = (),
) -> Document:
    """The lock of one environment.

    `indexed` gives the files of each package on the default index; `published` are rows of other publishers'
    indexes, which replace the default index's. A size that is known already is kept.
    """
    known = {row["sha256"]: row["size"] for row in (previous or {}).get("wheels", ())}
    rows = {row["name"]: row for row in published}
    for pin in pins(requirements, markers(environment.python)):
        if pin.name in rows:
            continue
        file = choose(pin, indexed.get(pin.name, ()), environment)
        rows[pin.name] = {
            "name": pin.name,
            "version": pin.version,
            "file": file.name,
            "sha256": file.sha256,
            "size": file.size or known.get(file.sha256),
            "index": None,
        }
    return {
        "python": environment.python,
        "platform": PLATFORM,
        "wheels": [rows[name] for name in sorted(rows)],
    }


def ask_index(requirements: Path, python: str) -> dict[str, list[IndexFile]]:
    """The files of each package of a requirement file, as the default index lists them, without fetching any.

    uv asks, with its own settings. Raises LockProblem when it gets no answer.
    """
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "pylock.toml")
        command = [find_uv_bin(), "pip", "compile", "--quiet", "--no-python-downloads"]
        # 2.40 is the newest glibc that uv has a name for.
        target = [f"--python-version={python}", "--python-platform=x86_64-manylinux_2_40"]
        answered = ["--no-deps", "--format=pylock.toml", f"--output-file={answer}"]
        done = run([*command, *target, *answered, str(requirements)])
        if done.returncode:
            reason = " ".join(done.stderr.split()[:60])
            raise LockProblem(f"The index did not list the files of {requirements.name}: {reason}")
        packages = tomllib.loads(answer.read_text(encoding="utf-8"))["packages"]
    return {package["name"]: [_index_file(file) for file in _listed(package)] for package in packages}


def _listed(package: dict[str, Any]) -> list[dict[str, Any]]:
    return [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else [])]


def _index_file(listed: dict[str, Any]) -> IndexFile:
    name = unquote(urlsplit(listed["url"]).path.rpartition("/")[2])
    # Indexes may state another kind of hash, which is none that a requirement file knows.
    return IndexFile(name, listed["hashes"].get("sha256", ""), listed.get("size"))
