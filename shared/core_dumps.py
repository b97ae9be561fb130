"""No core dumps: they would hold API keys, tokens and prompts."""

from __future__ import annotations

import resource

# One byte: a core file has to be larger, and the kernel starts no program for cores (a `core_pattern` that
# begins with |) at this very limit. At 0 it would.
_NONE = 1


def no_core_dumps() -> None:
    """For this process and those that it starts. The hard limit stays: whoever needs a core of a process that
    runs allows it with `prlimit --core=unlimited:unlimited --pid PID`.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if hard:  # else there are none already
        resource.setrlimit(resource.RLIMIT_CORE, (_NONE, hard))
