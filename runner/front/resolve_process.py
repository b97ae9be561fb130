"""A process that looks up names, one at a time, and can be killed: `python -I -S resolve_process.py SECONDS`.

Each line of its standard input is a name. Its answer is a line with the IP addresses, or with the number of
the error. A look-up that takes longer ends the process, so that it does not outlive the one that asks.
"""

import os
import signal
import socket
import sys

_MOST = 32  # addresses of a host


def main() -> None:
    """Answer until nobody asks any more."""
    seconds = int(sys.argv[1])
    for line in sys.stdin.buffer:
        signal.alarm(seconds)
        answer = _looked_up(line[:-1].decode())
        signal.alarm(0)
        try:
            os.write(1, f"{answer}\n".encode())
        except OSError:  # nobody waits any more
            return


def _looked_up(host: str) -> str:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except UnicodeError:  # an empty label, or one of more than 63 characters
        return str(int(socket.EAI_NONAME))
    except OSError as problem:
        return str(int(problem.errno or socket.EAI_FAIL))
    return " ".join(str(address[0]) for *_, address in found[:_MOST])


if __name__ == "__main__":
    main()
