"""End this process when the one that started it ends, however that happens (even by SIGKILL)."""

from __future__ import annotations

import os
import select
import threading


def end_with_parent() -> None:
    """Exit as soon as the parent process is gone.

    Not PR_SET_PDEATHSIG: its signal comes when the parent's *thread* that started this process ends.
    """
    parent = os.pidfd_open(os.getppid())

    def wait() -> None:
        gone = select.poll()  # select cannot take descriptors above 1023
        gone.register(parent, select.POLLIN)
        gone.poll()
        os._exit(1)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()
