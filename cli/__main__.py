"""The program `cog-triton`: what Ctrl-C ends without a traceback even while its commands are imported."""

from __future__ import annotations

import signal


def main() -> None:
    """Import the command line, which takes a tenth of a second, and run it."""
    ignored = signal.getsignal(signal.SIGINT) is not signal.default_int_handler  # a job in the background
    if not ignored:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from cli.main import main as run

    if not ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
