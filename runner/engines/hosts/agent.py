"""What mpirun calls instead of ssh, to start its daemon on a host that has joined: `agent HOST COMMAND...`.

It tells the launcher, which has a link to that host; mpirun's daemon puts itself in the background.
"""

from __future__ import annotations

import os
import shlex
import sys

from .link import LinkLost, LinkRefused, connect

ADDRESS = "COG_TRITON_LAUNCHER"
SECRET = "COG_TRITON_LAUNCH_SECRET"  # noqa: S105 - its name


DAEMONS = ("orted", "prted")
"""mpirun's daemon, of Open MPI 4 and of 5."""


def daemon_command(words: list[str]) -> list[str]:
    """What a shell would run from the line that mpirun passes to ssh. Raises ValueError when it is not a
    daemon.

    Open MPI 5 sets paths of its libraries before it; every host has them in the same place.
    """
    lexer = shlex.shlex(" ".join(words), posix=True, punctuation_chars=";")
    lexer.whitespace_split = True
    tokens = list(lexer)
    for place, token in enumerate(tokens):
        if (name := token.rpartition("/")[2]) in DAEMONS:
            return [name, *tokens[place + 1 :]]
    raise ValueError("not one of mpirun's daemons")


def main() -> int:
    """Exit status 0 when the launcher has accepted it."""
    host, *words = sys.argv[1:]
    try:
        command = daemon_command(words)
        link = connect(os.environ[ADDRESS], os.environ[SECRET].encode())
        link.send({"start": host, "command": command})
        return 0 if link.receive().get("started") else 1
    except (OSError, KeyError, ValueError, LinkRefused, LinkLost) as problem:
        why = (isinstance(problem, OSError) and problem.strerror) or problem
        sys.stderr.write(f"{host} cannot be reached: {why}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
