"""Hashed requirement files, as written by pip and uv."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from nix.lock.files import LockProblem

if TYPE_CHECKING:
    from collections.abc import Mapping

_HASH = "--hash=sha256:"


@dataclass(frozen=True, slots=True)
class Pin:
    """One package of a requirement file: its exact version and the files that are allowed."""

    name: str
    version: str
    sha256: frozenset[str]


def pins(text: str, environment: Mapping[str, str]) -> list[Pin]:
    """The packages of a requirement file that `environment` (of PEP 508 markers) installs, by name.

    Raises LockProblem for a line that is not one version with hashes.
    """
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        stated = line.split("#")[0].strip()
        if not stated:
            continue
        words = stated.split(_HASH)
        try:
            requirement = Requirement(words[0])
        except InvalidRequirement as error:
            raise LockProblem(f"`{words[0].strip()}` is not a requirement; run ci/lock.") from error
        exact = [part.version for part in requirement.specifier if part.operator == "=="]
        hashes = frozenset(word.strip() for word in words[1:])
        if len(exact) != 1 or not hashes:
            raise LockProblem(f"{requirement.name} is not one version with hashes; run ci/lock.")
        if requirement.marker is None or requirement.marker.evaluate(dict(environment)):
            found.append(Pin(canonicalize_name(requirement.name), exact[0], hashes))
    return sorted(found, key=lambda pin: pin.name)
