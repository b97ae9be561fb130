"""Where the parts that are not Python code are: Triton, the engine bridge, the engines' environments.

A checkout keeps them in `.build` (see the Makefile); the images in /opt/cog-triton, with the same folders
inside. `COG_TRITON_HOME` sets another place.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from glob import escape, glob
from pathlib import Path

from shared.errors import PartNotInstalled

PROJECT_ROOT = Path(__file__).resolve().parent.parent
SETUP = PROJECT_ROOT / "ci/setup.py"
WITHOUT_ENVIRONMENT = frozenset({"mock"})
"""The engines that need nothing but the standard library: they run in the environment of their caller."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The folders of one installation."""

    home: Path

    @classmethod
    def current(cls) -> Layout:
        """The installation that this process belongs to."""
        # Path raises for a link to itself.
        return cls(Path(os.path.realpath(os.environ.get("COG_TRITON_HOME") or PROJECT_ROOT / ".build")))

    @property
    def tritonserver(self) -> Path:
        """Triton's program. Raises PartNotInstalled when it is not there."""
        return _existing("tritonserver", self.home / "triton/pytriton/tritonserver/bin/tritonserver")

    @property
    def triton_libraries(self) -> Path:
        """What Triton's program needs in LD_LIBRARY_PATH. Raises PartNotInstalled when it is not there."""
        return _existing("Triton's libraries", self.home / "triton/nvidia_pytriton.libs")

    @property
    def backend_directory(self) -> Path:
        """Triton's `--backend-directory`: holds the engine bridge. Raises PartNotInstalled when it is not
        built.
        """
        directory = self.home / "bridge"
        _existing("engine bridge", directory / "engine_bridge/libtriton_engine_bridge.so")
        return directory

    @property
    def tokenizer_converter(self) -> Path:
        """The interpreter of its environment. Raises PartNotInstalled when it is not there."""
        return _existing("tokenizer converter", self.home / "tokenizer-converter/bin/python")

    def engine_python(self, kind: str) -> Path:
        """The interpreter of the environment of one engine. Raises PartNotInstalled when it is not there.

        An engine in WITHOUT_ENVIRONMENT has that of its caller.
        """
        if kind in WITHOUT_ENVIRONMENT:
            return Path(sys.executable)
        # Not resolved: an environment is found through the location of its `python`, which is a link.
        return _existing(f"environment of the engine {kind}", self.home / "engines" / kind / "bin/python")

    def available_engines(self) -> list[str]:
        """The kinds of engine that can run here."""
        # Path raises for too long a name; glob.glob finds nothing there.
        found = glob(f"{escape(str(self.home))}/engines/*/bin/python")  # noqa: PTH207
        return sorted({*WITHOUT_ENVIRONMENT, *(Path(path).parent.parent.name for path in found)})


def is_checkout() -> bool:
    """Whether this is a checkout; an image of ours has no ci/."""
    return SETUP.is_file()


def _existing(part: str, path: Path) -> Path:
    if not os.path.exists(path):  # noqa: PTH110 - Path raises for too long a name
        raise PartNotInstalled(part=part, place=path)
    return path
