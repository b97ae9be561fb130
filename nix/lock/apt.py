"""What Debian offers, asked through apt: its signatures, its mirror, its proxy; in folders of our own.

The mirror is the one in the machine's own sources, so that no address is in the repository.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from nix.lock.debian import Package, packages
from nix.lock.files import LockProblem
from shared.programs import run

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
# By the label that an archive's Release file gives it.
_SUITES = {"Debian": "{suite}", "Debian-Security": "{suite}-security"}


class Apt:
    """apt with sources and lists of its own."""

    def __init__(self, options: list[str]) -> None:
        self._options = options

    def candidates(self) -> list[Package]:
        """The version of every package that would be installed."""
        return packages(self.run("apt-cache", "dumpavail"))

    def versions(self, names: Collection[str]) -> list[Package]:
        """Every available version of the packages `names`; those that are gone are left out."""
        known = set(self.run("apt-cache", "pkgnames").split())
        return packages(self.run("apt-cache", "show", *sorted(known.intersection(names))))

    def run(self, program: str, *arguments: str) -> str:
        """The output of an apt program. Raises LockProblem when it fails or is missing."""
        try:
            done = run([program, *self._options, *arguments])
        except FileNotFoundError as error:
            raise LockProblem("The Debian lock is made with apt; run `make lock` on Debian.") from error
        if done.returncode:
            reason = " ".join(done.stderr.split()[:40])
            raise LockProblem(f"apt could not read Debian's lists: {reason}")
        return done.stdout


@contextmanager
def private_apt(suite: str, architecture: str) -> Iterator[Apt]:
    """An apt for another suite than the machine's, with fresh lists. Raises LockProblem when it has none."""
    sources = _sources(suite)
    with TemporaryDirectory() as folder:
        root = Path(folder)
        # apt drops its privileges to fetch.
        root.chmod(0o755)
        for made in ("state/lists/partial", "cache/archives/partial"):
            (root / made).mkdir(parents=True)
        (root / "sources.list").write_text(sources, encoding="utf-8")
        settings = {
            "Dir::State": root / "state",
            "Dir::State::status": "/dev/null",
            "Dir::Cache": root / "cache",
            "Dir::Etc::sourcelist": root / "sources.list",
            "Dir::Etc::sourceparts": "-",
            "Dir::Etc::preferencesparts": "-",
            "APT::Architecture": architecture,
            "APT::Architectures": architecture,
            # Half a list would make half a lock.
            "APT::Update::Error-Mode": "any",
        }
        apt = Apt([word for name, value in settings.items() for word in ("-o", f"{name}={value}")])
        apt.run("apt-get", "update", "--quiet")
        yield apt


def _sources(suite: str) -> str:
    """A sources.list for `suite` on the mirrors of the machine's own sources."""
    listed = Apt([]).run(
        "apt-get", "indextargets", "--format", "$(LABEL) $(REPO_URI)", "Created-By: Packages"
    )
    mirrors = dict(line.split(" ", 1) for line in listed.splitlines())
    missing = _SUITES.keys() - mirrors.keys()
    if missing:
        raise LockProblem(
            f"This machine's apt has no lists of {' and '.join(sorted(missing))}; "
            "run `apt-get update` on a Debian machine with its security updates enabled."
        )
    return "".join(
        f"deb [signed-by={_KEYRING}] {mirrors[label]} {name.format(suite=suite)} main\n"
        for label, name in _SUITES.items()
    )
