"""One build in a process of its own: `python -m cli.builder_server.process CONFIG OUTPUT`.

HF_TOKEN is the token. SIGTERM ends the build and removes what it made. The text of a coded error is written
to the standard output, and the exit status is 1 then.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from builder.pipeline import build
from shared.errors import CogTritonError, GenericError
from shared.logs import configure_logging
from shared.progress import stderr_progress


def main() -> int:
    """Build; see above."""
    configure_logging()
    signal.signal(signal.SIGTERM, _end)
    _, config, output = sys.argv
    try:
        build(config, Path(output), hf_token=os.environ.get("HF_TOKEN"), progress=stderr_progress())
    except CogTritonError as error:
        sys.stdout.write(str(error))
        return 1
    except Exception:
        import structlog

        structlog.get_logger().exception("the build failed")
        sys.stdout.write(str(GenericError()))
        return 1
    return 0


def _end(number: int, _frame: object) -> None:
    """Unwind: what a build started and wrote is ended and removed on the way."""
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
