"""nix/locks/debian.json: the Debian packages of the images, with what they depend on.

We compute the closure because apt cannot stop at a package: images leave out, each for a stated reason, what
only maintainer scripts or absent hardware would use.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nix.lock.files import Document, LockProblem, Row, Shape

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

Fields = dict[str, str]
ROOTS: Shape = {
    "suite": str,
    "architecture": str,
    "roots": {"set": str, "name": str},
    "stops": {"name": str},
}
LOCKED: Shape = {"packages": {"name": str, "version": str}}


@dataclass(frozen=True, slots=True)
class Package:
    """One version of a package that the mirror offers."""

    fields: Fields

    @property
    def name(self) -> str:
        return self.fields["Package"]

    @property
    def version(self) -> str:
        return self.fields["Version"]

    def needs(self) -> list[list[str]]:
        """Groups of names; one member satisfies each, and Debian prefers the first."""
        stated = [self.fields.get("Pre-Depends", ""), self.fields.get("Depends", "")]
        return [[_bare(name) for name in group.split("|")] for group in _members(",".join(stated))]

    def provides(self) -> list[str]:
        return [_bare(name) for name in _members(self.fields.get("Provides", ""))]

    def row(self, *, via: str | None, set_: str) -> Row:
        """Its entry in the lock; `file` is the path in the pool of `archive`."""
        file = self.fields["Filename"]
        return {
            "name": self.name,
            "version": self.version,
            "architecture": self.fields["Architecture"],
            "set": set_,
            "depends_via": via,
            # Debian keeps security updates in an archive of its own.
            "archive": "debian-security" if file.startswith("pool/updates/") else "debian",
            "file": file,
            "sha256": self.fields["SHA256"],
            "size": int(self.fields["Size"]),
        }


def packages(listing: str) -> list[Package]:
    """The packages of a Packages file (deb822: stanzas of `Field: value`, blank lines between them)."""
    stanzas = re.split(r"\n{2,}", listing.strip())
    return [Package(fields) for stanza in stanzas if (fields := _fields(stanza))]


def closure(
    roots: Iterable[str],
    stops: Collection[str],
    available: Mapping[str, Package],
    have: Collection[str] = (),
) -> dict[str, str | None]:
    """What `roots` need, by name, with the package that needs it (None: a root).

    `have` is present already, with its needs. A need is left out if its preferred name is a stop.
    Raises LockProblem for a need that nothing satisfies.
    """
    providers: dict[str, list[str]] = {}
    for package in available.values():
        for name in package.provides():
            providers.setdefault(name, []).append(package.name)
    via: dict[str, str | None] = {name: None for name in roots if name not in have}

    def satisfies(name: str) -> bool:
        return any(real in via or real in have for real in (name, *providers.get(name, ())))

    waiting = list(via)
    for name in waiting:
        if name not in available:
            raise LockProblem(f"Debian does not offer {name}; fix nix/locks/debian-roots.json.")
        for group in available[name].needs():
            if group[0] in stops or any(satisfies(wanted) for wanted in group):
                continue
            real = [wanted for wanted in group if wanted in available]
            found = next(iter(real or sorted(providers.get(group[0], ()))), None)
            if found is None:
                raise LockProblem(
                    f"{name} needs {' or '.join(group)}, which Debian does not offer; "
                    "fix nix/locks/debian-roots.json."
                )
            if found not in stops:
                via[found] = name
                waiting.append(found)
    return via


def resolve(roots: Document, offered: Iterable[Package]) -> list[Row]:
    """The packages of every root set; a set holds only what earlier sets do not.

    Raises LockProblem for a root, stop or need that Debian does not know.
    """
    available = {package.name: package for package in offered}
    stops = {row["name"] for row in roots["stops"]}
    chosen: dict[str, Row] = {}
    for set_ in dict.fromkeys(row["set"] for row in roots["roots"]):
        wanted = [row["name"] for row in roots["roots"] if row["set"] == set_]
        for name, via in closure(wanted, stops, available, chosen.keys()).items():
            chosen[name] = available[name].row(via=via, set_=set_)
    return sorted(chosen.values(), key=lambda row: row["name"])


def gone(locked: Iterable[Row], offered: Iterable[Package]) -> list[str]:
    """The locked packages that the mirror no longer has, as `name version`."""
    there = {(package.name, package.version) for package in offered}
    return [f"{row['name']} {row['version']}" for row in locked if (row["name"], row["version"]) not in there]


def _fields(stanza: str) -> Fields:
    # Continuation lines hold descriptions, which nothing here reads.
    lines = (line for line in stanza.splitlines() if line[:1].strip())
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _members(value: str) -> Iterator[str]:
    return (member.strip() for member in value.split(",") if member.strip())


def _bare(name: str) -> str:
    """A name without version and architecture: `libc6 (>= 2.38)`, `python3:any`."""
    return re.split(r"[ (:\[]", name.strip(), maxsplit=1)[0]
