"""Write nix/locks: `python -m nix.lock [--upgrade]`.

`... fill` only writes unknown hashes that can be found; `... check-debian` checks Debian's mirror.
"""

from __future__ import annotations

import argparse
import hashlib
import signal
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from nix.lock import apt, debian, publishers, wheels
from nix.lock.environments import ENVIRONMENTS
from nix.lock.files import ROOT, LockProblem, content, read, write
from shared.signals import heeded

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from nix.lock.files import Document


class Locks:
    """The locks of a checkout. Each method may raise LockProblem, having changed nothing."""

    def __init__(self, checkout: Path) -> None:
        self._requirements = checkout / "requirements"
        locks = checkout / "nix/locks"
        self._wheels = locks / "wheels"
        self._publishers = locks / "publishers.json"
        self._roots = locks / "debian-roots.json"
        self._debian = locks / "debian.json"

    def publishers(self) -> None:
        before = read(self._publishers, publishers.SHAPE)
        after = publishers.check(before)
        write(self._publishers, after)
        _say_trusted(before, after)

    def fill(self) -> None:
        """Write the hashes that were unknown; then raises LockProblem for those that cannot be found."""
        before = read(self._publishers, publishers.SHAPE)
        document, problems = publishers.fill(before)
        known = {row["file"]: row for row in document["artifacts"]}
        documents = {path: read(path, wheels.UNKNOWN) for path in self._wheels.glob("*.json")}
        for path, lock in documents.items():
            for row in lock["wheels"]:
                if row["sha256"] is None and row["file"] not in known:
                    problems.append(f"{path.name}: only `make lock` finds the sha256 of {row['file']}.")
                elif row["sha256"] is None:
                    row["sha256"] = known[row["file"]]["sha256"]
        for path, lock in {**documents, self._publishers: document}.items():
            write(path, lock)
        _say_trusted(before, document)
        if problems:
            raise LockProblem("\n".join(problems))

    def wheels(self) -> None:
        published = read(self._publishers, publishers.SHAPE)
        documents = {}
        for environment in ENVIRONMENTS:
            requirements = self._requirements / f"{environment.name}.txt"
            if environment.optional and not requirements.exists():
                continue
            path = self._wheels / f"{environment.name}.json"
            documents[path] = wheels.document(
                environment,
                content(requirements),
                wheels.ask_index(requirements, environment.python),
                read(path, wheels.KNOWN) if path.exists() else None,
                publishers.wheel_rows(published, environment.name),
            )
        for path, document in documents.items():
            write(path, document)

    def debian(self, *, upgrade: bool) -> None:
        """Resolve again when the roots have changed, or to take newer versions."""
        roots = read(self._roots, debian.ROOTS)
        digest = hashlib.sha256(self._roots.read_bytes()).hexdigest()
        locked = read(self._debian) if self._debian.exists() else {}
        if locked.get("roots_sha256") == digest and not upgrade:
            return
        with apt.private_apt(roots["suite"], roots["architecture"]) as debian_apt:
            rows = debian.resolve(roots, debian_apt.candidates())
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        document = {
            "suite": roots["suite"],
            "roots_sha256": digest,
            # When the mirror had all of these.
            "snapshot": locked.get("snapshot", now) if locked.get("packages") == rows else now,
            "packages": rows,
        }
        write(self._debian, document)

    def check_debian(self) -> None:
        """Raises LockProblem with the locked packages that have left the mirror."""
        rows = read(self._debian, debian.LOCKED)["packages"]
        roots = read(self._roots, debian.ROOTS)
        with apt.private_apt(roots["suite"], roots["architecture"]) as debian_apt:
            gone = debian.gone(rows, debian_apt.versions([row["name"] for row in rows]))
        if gone:
            raise LockProblem(
                f"Debian's mirror no longer has {', '.join(gone)}; images take them from its snapshot "
                "archive until `make lock UPGRADE=1` takes the newer ones."
            )


def _say_trusted(before: Document, after: Document) -> None:
    for sentence in publishers.trusted(before, after):
        sys.stdout.write(f"{sentence}\n")


def main(arguments: list[str] | None = None, checkout: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="python -m nix.lock", description=__doc__)
    parser.add_argument("command", nargs="?", choices=["fill", "check-debian"])
    parser.add_argument("--upgrade", action="store_true", help="take newer Debian packages")
    options = parser.parse_args(arguments)
    locks = Locks(checkout)
    steps: list[Callable[[], None]] = [locks.publishers, locks.wheels]
    steps.append(lambda: locks.debian(upgrade=options.upgrade))
    if options.command:
        steps = [locks.fill if options.command == "fill" else locks.check_debian]
    failed = False
    for step in steps:
        try:
            step()
        except LockProblem as problem:
            sys.stderr.write(f"{problem}\n")
            failed = True
        except OSError as error:
            sys.stderr.write(f"{error.filename or 'A temporary file'} cannot be used: {error.strerror}.\n")
            failed = True
    return int(failed)


def _interrupt(by: int, _frame: object) -> None:
    raise KeyboardInterrupt(by)


if __name__ == "__main__":
    # What is under way ends, and leaves no folder.
    for number in heeded():
        signal.signal(number, _interrupt)
    try:
        sys.exit(main())
    except KeyboardInterrupt as by:
        sys.exit(128 + int(by.args[0]))
