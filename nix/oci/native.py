"""What only the image's own programs can make: bytecode, with its Python; the loader's cache, with its
ldconfig.

They come from its Debian packages and are started by its own loader, so the machine's Python and libraries do
not matter: the bytes are a function of the locks, like all others.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from . import debian
from .problem import Problem
from .tree import Tree

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

_CACHE = "etc/ld.so.cache"
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_COMPILER = Path(__file__).with_name("compile_modules.py")
# Files for one process: the same ones on every machine, however many cores it has.
_BATCH = 200
# A test is never imported by what an image runs.
_NOT_IMPORTED = {"tests", "test"}


def compile_modules(
    tree: Tree,
    places: Sequence[str],
    seldom: Collection[str] = (),
    *,
    interpreter: str,
    version: str,
    packages: Sequence[Path],
) -> None:
    """Add bytecode beside the modules below `places`: files without a time, which are never checked.

    None is added below `seldom`, whose modules are seldom imported. `interpreter` is a path of the tree or of
    the Debian `packages`, which hold its loader and libraries in any case. Modules that it cannot compile are
    left as they are: importing them says why. Raises Problem.
    """
    with _unpacked(packages) as root:
        home = tree.root if (tree.root / interpreter).exists() else root
        python = (home / interpreter).resolve()
        if python.read_bytes()[:4] != b"\x7fELF":
            return  # a stand-in (nix/lock/stand_ins.py), which is not a Python
        libraries = root / _LIBRARIES
        command = [str(libraries / "ld-linux-x86-64.so.2"), "--library-path", str(libraries), str(python)]
        command += ["-BPS", "-Wignore", str(_COMPILER), str(tree.root), version]
        # Nothing from this machine's environment; sets have a fixed order.
        environment = {"PYTHONHOME": str(python.parent.parent), "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}

        def run(batch: list[str]) -> None:
            done = subprocess.run(
                command, env=environment, input="\0".join(batch).encode(), capture_output=True, check=False
            )
            if done.returncode:
                reason = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
                raise Problem(f"The image's Python {version} could not compile its modules: {reason}")

        modules = [name for place in places for name in _modules(tree.root, place, seldom)]
        batches = [modules[start : start + _BATCH] for start in range(0, len(modules), _BATCH)]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(run, batches))


def cache_libraries(tree: Tree, packages: Sequence[Path]) -> None:
    """Add the cache in which ldconfig lists the libraries of the Debian `packages`. Raises Problem."""
    with _unpacked(packages) as root:
        # Not for the loader, which knows the folders: Python's find_library needs the cache.
        options = ["-r", str(root), "-X", "-i"]  # no links, and no second cache with times in it
        done = subprocess.run(
            [root / "usr/sbin/ldconfig", *options], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise Problem(f"The image's ldconfig failed: {done.stderr.strip()}")
        tree.file(_CACHE, (root / _CACHE).read_bytes())


@contextmanager
def _unpacked(packages: Sequence[Path]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="programs-") as scratch:
        tree = Tree(Path(scratch).resolve())
        debian.merge_usr(tree)
        for package in packages:
            debian.unpack(package, tree)
        yield tree.root


def _modules(root: Path, place: str, seldom: Collection[str]) -> list[str]:
    found = []
    for folder, folders, names in os.walk(root / place):
        inside = Path(folder).relative_to(root).as_posix()
        folders[:] = [
            name for name in folders if name not in _NOT_IMPORTED and f"{inside}/{name}" not in seldom
        ]
        modules = (name for name in names if name.endswith(".py"))
        found += [f"{inside}/{name}" for name in modules if not Path(folder, name).is_symlink()]
    return sorted(found)
