"""`python -m builder.engines.ctranslate2 --model DIR --output DIR --quantization float32|int8`.

Runs in the engine's environment. Prints `progress DONE TOTAL` (bytes of model.bin) on stdout; a coded error
goes to stderr, with exit status 1.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from shared.errors import CogTritonError

from .convert import QUANTIZATIONS, convert


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="python -m builder.engines.ctranslate2", description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--quantization", choices=QUANTIZATIONS, required=True)
    arguments = parser.parse_args()
    try:
        convert(arguments.model, arguments.output, arguments.quantization, _print_progress)
    except CogTritonError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _print_progress(done: int, total: int) -> None:
    sys.stdout.write(f"progress {done} {total}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
