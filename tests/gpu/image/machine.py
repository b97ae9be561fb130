"""The image put together on the machine, and what is seen of its processes."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.gpu.serving.machine import MULTICAST_OFF

if TYPE_CHECKING:
    from collections.abc import Iterator

_COMPILERS = re.compile(r"(gcc|g\+\+|cc|c\+\+|clang|clang\+\+|tcc|nvcc|ld|as)(-[0-9.]+)?")
_DRIVER = re.compile(r"lib(cuda|nvidia-[a-z0-9-]+|cudadebugger)\.so(\.[0-9.]+)?")
_PYTHON, _VERSION = "/usr/bin/python3.13", "3.13"
_COMPILER = Path(__file__).resolve().parents[3] / "nix/oci/compile_modules.py"
_BATCH = 200  # modules for one process
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_COMMENT = re.compile(rb"(?:GCC: |clang version |Linker: |zig )[ -~]{3,80}")


class Assembled:
    """The image's files below `root`: those that were carried are there, others are put beside them."""

    def __init__(self, directory: Path, target: Path, machine_site: Path) -> None:
        self.root = directory / "rootfs"
        self.facts: dict[str, Any] = json.loads((directory / "image.json").read_text())
        self._site, self._home = target / "site", target / "home"
        self._machine_site = machine_site
        self._names: list[str] = list(self.facts["bytecode"])
        self.mounted: dict[str, str] = {}
        """Files of the machine, by their place in the image."""

    def complete(self) -> dict[str, Any]:
        """Add what was not carried; returns what was found of it."""
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            same = list(pool.map(self._of_the_site, self.facts["of the site"].items()))
            machine = dict(
                zip(
                    self.facts["of the machine"],
                    pool.map(self._of_the_machine, self.facts["of the machine"].items()),
                    strict=True,
                )
            )
            same_bytecode = sum(self._bytecode(pool))
        return {
            "same bytecode": f"{same_bytecode} of {len(self.facts['bytecode'])}",
            "same bytes from elsewhere": sum(same),
            "other bytes from elsewhere": len(same) - sum(same),
            "of the machine": machine,
        }

    def _of_the_site(self, item: tuple[str, dict[str, Any]]) -> bool:
        name, facts = item
        source, target = self._site / facts["path"], self.root / name
        if not source.is_file():
            return False
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        shutil.copyfile(source, target)
        target.chmod(facts["mode"])
        return _digest(target) == facts["sha256"]

    def _bytecode(self, pool: ThreadPoolExecutor) -> Iterator[bool]:
        """Compile what was not carried, with the image's Python, as the layer was; whether each is the same."""
        modules = [
            re.sub(r"__pycache__/([^/]+)\.cpython-[0-9]+\.pyc$", r"\1.py", name) for name in self._names
        ]
        command = [
            "chroot",
            str(self.root),
            _PYTHON,
            "-BPS",
            "-Wignore",
            "-c",
            _COMPILER.read_text(),
            "",
            _VERSION,
        ]

        def run(start: int) -> None:
            batch = "\0".join(modules[start : start + _BATCH])
            subprocess.run(
                command,
                input=batch.encode(),
                env={"PATH": os.environ["PATH"], "PYTHONHASHSEED": "0"},
                check=False,
            )

        list(pool.map(run, range(0, len(modules), _BATCH)))
        yield from pool.map(self._is_same_bytecode, self._names)

    def _is_same_bytecode(self, name: str) -> bool:
        path = self.root / name
        return path.is_file() and _digest(path) == self.facts["bytecode"][name]

    def _of_the_machine(self, item: tuple[str, dict[str, Any]]) -> str:
        name, facts = item
        source = self._home / facts["home"] if "home" in facts else self._machine_site / facts["path"]
        target = self.root / name
        if not source.is_file():
            return "missing"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
        self.mounted[name] = str(source)
        if (found := _digest(source)) == facts["sha256"]:
            return "the same bytes"
        return "as published" if found == facts["published"] else "other bytes"

    def add_driver(self) -> list[str]:
        """The driver's libraries and the loader's cache, as NVIDIA's container runtime adds them."""
        listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
        paths = [Path(line.rpartition(" => ")[2]) for line in listed.splitlines() if "x86-64" in line]
        for folder in ("/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/local/nvidia"):
            paths += Path(folder).glob("*.so*")
        place = self.root / _LIBRARIES
        for path in paths:
            if _DRIVER.fullmatch(path.name) and path.is_file():
                real = path.resolve()
                if not (place / real.name).exists():
                    shutil.copyfile(real, place / real.name)
                    (place / real.name).chmod(0o755)
                if not (place / path.name).exists():
                    (place / path.name).symlink_to(real.name)
        subprocess.run(["chroot", str(self.root), "/usr/sbin/ldconfig"], check=True)
        return sorted(path.name for path in place.iterdir() if _DRIVER.fullmatch(path.name))

    def compilers(self) -> list[str]:
        """The programs in the image's PATH that could compile, and others of that name anywhere."""
        folders = [self.root / name for name in ("usr/bin", "usr/sbin", "usr/local/bin", "opt")]
        found = (path for folder in folders for path in folder.rglob("*") if _COMPILERS.fullmatch(path.name))
        return sorted(str(path.relative_to(self.root)) for path in found if path.is_file())

    def process(self, pid: int, name: str) -> dict[str, Any]:
        """What shows that a process runs in the image, and from what it was started."""
        place = Path(f"/proc/{pid}")
        variables = dict(
            part.split("=", 1)
            for part in (place / "environ").read_text(errors="replace").split("\0")
            if "=" in part
        )
        return {
            "name": name[:120],
            "root": str((place / "root").readlink()),
            "program": str((place / "exe").readlink()),
            "user": place.stat().st_uid,
            "PATH": variables.get("PATH"),
            "CC": variables.get("CC"),
            "multicast is off": variables.items() >= MULTICAST_OFF.items(),
        }


def compiled(cache: Path) -> dict[str, Any]:
    """What was compiled at a start, and by which compiler, as the libraries' .comment says."""
    libraries = sorted(path for path in cache.rglob("*.so") if path.is_file())
    comments: dict[str, int] = {}
    for path in libraries:
        told = " | ".join(sorted({found.decode() for found in _COMMENT.findall(path.read_bytes())}))
        comments[told] = comments.get(told, 0) + 1
    sizes: dict[str, int] = {}
    for path in cache.rglob("*"):
        if path.is_file() and not path.is_symlink():
            inside = path.relative_to(cache).parts
            kind = inside[1] if len(inside) > 2 else "others"  # DIGEST/KIND/...
            sizes[kind] = sizes.get(kind, 0) + path.stat().st_size
    return {
        "libraries": [path.name for path in libraries][:20],
        "compilers": comments,
        "kilobytes": {kind: size >> 10 for kind, size in sizes.items()},
    }


def _digest(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
