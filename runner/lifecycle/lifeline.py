"""End this process when the one that started it ends, however that happens (also by SIGKILL)."""

from __future__ import annotations

import os
import select
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Lifeline:
    """Calls `before`, then exits, as soon as the parent process is gone.

    Not PR_SET_PDEATHSIG: its signal comes when the parent's *thread* ends that started this process, and
    leaves no time to clean up.
    """

    def __init__(self) -> None:
        self.before: Callable[[], object] = lambda: None
        """What must not be left behind; set it as soon as there is something."""
        self._parent = os.pidfd_open(os.getppid())
        threading.Thread(target=self._wait, name="lifeline", daemon=True).start()

    def _wait(self) -> None:
        gone = select.poll()  # select knows no descriptor above 1023
        gone.register(self._parent, select.POLLIN)
        gone.poll()
        try:
            self.before()
        finally:
            os._exit(1)
