"""Run a supervisor: `python -m runner.lifecycle`, the command of the runner images and of `cog-triton serve`.

Its settings come from the environment; docs/environment.md lists them.
"""

from __future__ import annotations

import sys

from shared.signals import ends_held


def main() -> int:
    """Import the supervisor, which takes a few tenths of a second, and run it; return its exit status."""
    with ends_held():
        from runner.lifecycle.program import main as run

        return run()


if __name__ == "__main__":
    sys.exit(main())
