"""Write every document that is made from the code: `python -m tools.docs`.

With `--check` nothing is written, and the exit status is 1 when one is stale.
"""

from __future__ import annotations

import sys

from shared.layout import PROJECT_ROOT
from tools.docs.generated import documents, stale


def main() -> None:
    """Write, or check."""
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit("usage: python -m tools.docs [--check]")
    made = documents()
    found = stale(made)
    if sys.argv[1:] and found:
        sys.exit(f"stale: {', '.join(found)}; run `make docs`")
    for path in found:
        (PROJECT_ROOT / path).write_text(made[path], encoding="utf-8")


if __name__ == "__main__":
    main()
