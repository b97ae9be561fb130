"""Write nix/locks: `python -m nix.lock [--upgrade]`.

`... fill` only writes unknown hashes that can be found; `... check-debian` checks Debian's mirror.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from nix.lock import apt, debian, publishers, wheels
from nix.lock.environments import ENVIRONMENTS
from nix.lock.files import ROOT, LockProblem, read, write

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
        before = read(self._publishers)
        after = publishers.check(before)
        write(self._publishers, after)
        _say_trusted(before, after)

    def fill(self) -> None:
        """Write the hashes that were unknown; then raises LockProblem for those that cannot be found."""
        before = read(self._publishers)
        document, problems = publishers.fill(before)
        known = {row["file"]: row for row in document["artifacts"]}
        for path in self._wheels.glob("*.json"):
            lock = read(path)
            for row in lock["wheels"]:
                if row["sha256"] is None:
                    row["sha256"] = known[row["file"]]["sha256"]
            write(path, lock)
        write(self._publishers, document)
        _say_trusted(before, document)
        if problems:
            raise LockProblem("\n".join(problems))

    def wheels(self) -> None:
        published = read(self._publishers)
        documents = {}
        for environment in ENVIRONMENTS:
            requirements = self._requirements / f"{environment.name}.txt"
            path = self._wheels / f"{environment.name}.json"
            documents[path] = wheels.document(
                environment,
                requirements.read_text(encoding="utf-8"),
                wheels.ask_index(requirements, environment.python),
                read(path) if path.exists() else None,
                publishers.wheel_rows(published, environment.name),
            )
        for path, document in documents.items():
            write(path, document)

    def debian(self, *, upgrade: bool) -> None:
        """Resolve again when the roots have changed, or to take newer versions."""
        roots = read(self._roots)
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
            "snapshot": locked["snapshot"] if locked.get("packages") == rows else now,
            "packages": rows,
        }
        write(self._debian, document)

    def check_debian(self) -> None:
        """Raises LockProblem with the locked packages that have left the mirror."""
        rows = read(self._debian)["packages"]
        roots = read(self._roots)
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
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
