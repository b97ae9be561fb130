"""Programs whose whole output is wanted."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from shared.signals import ends_held, take_ends

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a program until it ends; bytes of its output that are not UTF-8 are replaced. Raises
    FileNotFoundError.

    When this process is asked to end, the program is killed, even if it is just being started: then
    `subprocess.run` would leave it running. This holds while the process has one thread: another could take
    the signal.
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
