"""End this process when the one that started it ends, however that happens (also by SIGKILL)."""

from __future__ import annotations

import os
import select
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def die_with_parent(before: Callable[[], object]) -> None:
    """Call `before`, then exit, as soon as the parent process is gone.

    Not PR_SET_PDEATHSIG: its signal comes when the parent's *thread* ends that started this process, and
    leaves no time to clean up.
    """
    parent = os.pidfd_open(os.getppid())

    def wait() -> None:
        select.select([parent], [], [])
        try:
            before()
        finally:
            os._exit(1)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()
