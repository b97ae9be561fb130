"""The preparation of a runner, for all that COG_WEIGHTS may name."""

from __future__ import annotations

from cli.engines import engine_of
from runner.lifecycle.preparation import main

if __name__ == "__main__":
    main(engine_of)
