"""Leave only one GPU architecture's device code in shared libraries; standard library only.

docs/pruning.md explains how it works; `python3 -m prune --help` (from nix/), how to run it.
"""

from .library import list_library, prune_library
from .refused import Refused
from .report import LibraryReport, Outcome, TreeReport
from .tree import prune_wheel_tree

__all__ = [
    "LibraryReport",
    "Outcome",
    "Refused",
    "TreeReport",
    "list_library",
    "prune_library",
    "prune_wheel_tree",
]
