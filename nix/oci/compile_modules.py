"""Run by the Python of an image: python3 compile_modules.py ROOT VERSION < NAMES

compiles modules, whose names below ROOT arrive separated by NUL. The bytecode names the modules as the image
does, and is of the kind that Python loads without checking the source (PEP 552, unchecked hash).
"""

import contextlib
import py_compile
import sys


def main() -> None:
    root, version = sys.argv[1:]
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    if own != version:
        sys.exit(f"this is Python {own}")
    for name in sys.stdin.read().split("\0"):
        with contextlib.suppress(py_compile.PyCompileError):
            py_compile.compile(
                f"{root}/{name}",
                dfile=f"/{name}",
                doraise=True,
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )


if __name__ == "__main__":
    main()
