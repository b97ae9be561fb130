"""Whether the kernel has killed processes because memory ran out, here or in a container beside this one."""

from __future__ import annotations

from pathlib import Path

_COUNTERS = Path("/proc/vmstat")  # also of what a cgroup's limit causes; a cgroup has its own only since v2


def killed_so_far() -> int:
    """How many it has killed since the machine started; 0 where that is not known."""
    try:
        counters = _COUNTERS.read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in counters.splitlines() if line.startswith("oom_kill ")), 0)
