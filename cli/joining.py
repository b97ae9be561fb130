"""A host that joins others, for all that COG_WEIGHTS may name."""

from __future__ import annotations

import sys

from cli.engines import engine_of
from runner.lifecycle.joining import main

if __name__ == "__main__":
    sys.exit(main(engine_of))
