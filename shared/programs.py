"""Programs whose whole output is wanted."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from shared.signals import ends_held, take_ends

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a program until it ends; what is no text in its output is replaced. Raises FileNotFoundError.

    It is killed when this process is asked to end. Under `subprocess.run` it would go on where that happens
    while it is being started. For a process with one thread: another could take the signal.
    """
    with (
        ends_held(),
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            preexec_fn=take_ends,  # noqa: PLW1509  it only makes a system call
        ) as process,
    ):
        try:
            take_ends()
            out, err = process.communicate()
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)
