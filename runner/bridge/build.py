"""Compile the engine bridge.

    python -m runner.bridge.build --zig-path DIR --output .../engine_bridge/libtriton_engine_bridge.so

`DIR` holds the package `ziglang` (requirements/bridge.txt). The library's bytes depend only on the C sources
and the compiler: constants.h, which holds what they share with Python modules, is written by `make docs`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

_SOURCES = Path(__file__).resolve().parent
_TARGET = "x86_64-linux-gnu.2.31"
_FLAGS = (
    "-std=c11",
    "-D_GNU_SOURCE",
    "-O2",
    "-s",
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
    "-pthread",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wl,--build-id=none",
    "-Wl,--allow-shlib-undefined",  # Triton's functions are found in the server that loads the library
)


def build(zig_path: Path, output: Path) -> None:
    """Compile the library to `output`, which appears complete or not at all.

    Raises subprocess.CalledProcessError when the compiler refuses; it has said why on stderr.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=".build-") as scratch:
        library = Path(scratch, output.name)
        command = [sys.executable, "-m", "ziglang", "cc", "-target", _TARGET, *_FLAGS]
        command += ["-o", str(library)]
        command += [path.name for path in sorted(_SOURCES.glob("*.c"))]
        environment = {
            **os.environ,
            "PYTHONPATH": str(zig_path),
            "ZIG_LOCAL_CACHE_DIR": str(Path(scratch, "zig")),
            "ZIG_GLOBAL_CACHE_DIR": str(Path(scratch, "zig")),
        }
        subprocess.run(command, check=True, cwd=_SOURCES, env=environment)
        library.replace(output)


def main() -> None:
    """Run the command in the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m runner.bridge.build", description="Compile the engine bridge."
    )
    parser.add_argument("--zig-path", type=Path, required=True, help="the folder that holds `ziglang`")
    parser.add_argument("--output", type=Path, required=True, help="the library to write")
    options = parser.parse_args()
    try:
        build(options.zig_path.resolve(), options.output.resolve())
    except subprocess.CalledProcessError:  # the compiler, or Python where it is not, has said why
        sys.exit("The bridge was not compiled: the reason is above.")
    except OSError as error:
        sys.exit(f"{error.filename or options.output}: {error.strerror}")


if __name__ == "__main__":
    main()
