"""Write nix/locks: `python -m nix.lock [--upgrade]`; look at Debian's mirror: `... check-debian`."""

from __future__ import annotations

import argparse
import hashlib
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from nix.lock import apt, debian, publishers, wheels
from nix.lock.environments import ENVIRONMENTS
from nix.lock.files import LOCKS, ROOT, LockProblem, read, write

if TYPE_CHECKING:
    from collections.abc import Callable

_ROOTS = LOCKS / "debian-roots.json"
_DEBIAN = LOCKS / "debian.json"
_PUBLISHERS = LOCKS / "publishers.json"


def lock_publishers() -> None:
    write(_PUBLISHERS, publishers.check(read(_PUBLISHERS)))


def lock_wheels() -> None:
    published = read(_PUBLISHERS)
    documents = {}
    for environment in ENVIRONMENTS:
        requirements = ROOT / f"requirements/{environment.name}.txt"
        path = LOCKS / f"wheels/{environment.name}.json"
        documents[path] = wheels.document(
            environment,
            requirements.read_text(encoding="utf-8"),
            wheels.ask_index(requirements, environment.python),
            read(path) if path.exists() else None,
            publishers.wheel_rows(published, environment.name),
        )
    for path, document in documents.items():
        write(path, document)


def lock_debian(*, upgrade: bool) -> None:
    """Resolve anew when the roots have changed, or to take what is newer."""
    roots = read(_ROOTS)
    digest = hashlib.sha256(_ROOTS.read_bytes()).hexdigest()
    locked = read(_DEBIAN) if _DEBIAN.exists() else {}
    if locked.get("roots_sha256") == digest and not upgrade:
        return
    with apt.private_apt(roots["suite"], roots["architecture"]) as debian_apt:
        rows = debian.resolve(roots, debian_apt.candidates())
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    write(
        _DEBIAN,
        {
            "suite": roots["suite"],
            "roots_sha256": digest,
            # When the mirror held all of these.
            "snapshot": locked["snapshot"] if locked.get("packages") == rows else now,
            "packages": rows,
        },
    )


def check_debian() -> None:
    """Raises LockProblem that names the locked packages which have left the mirror."""
    locked = read(_DEBIAN)
    names = [row["name"] for row in locked["packages"]]
    with apt.private_apt(locked["suite"], read(_ROOTS)["architecture"]) as debian_apt:
        gone = debian.gone(locked["packages"], debian_apt.versions(names))
    if gone:
        raise LockProblem(
            f"{len(gone)} locked packages have left Debian's mirror and come from its snapshot archive now: "
            f"{', '.join(gone)}. `make lock UPGRADE=1` takes the newer ones."
        )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m nix.lock", description=__doc__)
    parser.add_argument("command", nargs="?", choices=["check-debian"])
    parser.add_argument("--upgrade", action="store_true", help="take newer Debian packages")
    options = parser.parse_args(arguments)
    steps: list[Callable[[], None]] = [
        lock_publishers,
        lock_wheels,
        lambda: lock_debian(upgrade=options.upgrade),
    ]
    problems = 0
    for step in [check_debian] if options.command else steps:
        try:
            step()
        except LockProblem as problem:
            sys.stderr.write(f"{problem}\n")
            problems += 1
    return min(problems, 1)


if __name__ == "__main__":
    sys.exit(main())
