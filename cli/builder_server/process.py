"""One build in a process of its own: `python -m cli.builder_server.process OUTPUT`.

Standard input is the address of the config, HF_TOKEN the token. SIGTERM ends the build and removes what it
made. Standard output has JSON objects, one per line: `{"step", "done", "total"}` (bytes, null where not
known), and at the end `{"sha256", "size"}` of OUTPUT or `{"error"}`, the text of a coded error, with the exit
status 1.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from builder.pipeline import build
from shared.errors import CogTritonError, GenericError
from shared.logs import configure_logging, get_logger
from shared.progress import stderr_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shared.progress import Progress, StepProgress

_QUIET_SECONDS = 0.5


def main() -> int:
    """Build; see above."""
    configure_logging()
    signal.signal(signal.SIGTERM, _end)
    _, output = sys.argv
    config = sys.stdin.buffer.read().decode()
    server = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is for people

    def tell(**what: object) -> None:
        server.write(json.dumps(what) + "\n")

    progress = _Told(stderr_progress(), tell)
    try:
        build(config, Path(output), hf_token=os.environ.get("HF_TOKEN"), progress=progress)
        with progress.step("digest"), Path(output).open("rb") as archive:
            sha256 = hashlib.file_digest(archive, "sha256").hexdigest()
    except CogTritonError as error:
        tell(error=str(error))
        return 1
    except Exception:
        get_logger().exception("the build failed")
        tell(error=str(GenericError()))
        return 1
    tell(sha256=sha256, size=Path(output).stat().st_size)
    return 0


class _Told:
    """Tells the server, at most twice a second, what `shown` shows people of each step."""

    def __init__(self, shown: Progress, tell: Callable[..., None]) -> None:
        self._shown = shown
        self._tell = tell

    @contextmanager
    def step(self, name: str) -> Iterator[StepProgress]:
        with self._shown.step(name) as show:
            last = time.monotonic()

            def advance(done: int, total: int | None = None) -> None:
                nonlocal last
                show(done, total)
                if time.monotonic() - last >= _QUIET_SECONDS:
                    last = time.monotonic()
                    self._tell(step=name, done=done, total=total)

            self._tell(step=name, done=0, total=None)
            yield advance


def _end(number: int, _frame: object) -> None:
    """Unwind: on the way, what a build started is ended and what it wrote is removed."""
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
