"""Cog's own HTTP server in place of the front."""

from __future__ import annotations

import asyncio
import os
import sys

from runner.cog.answers import Answers
from runner.lifecycle.control import CONTROL
from runner.lifecycle.liveness import wait_until_hung
from runner.lifecycle.processes import children
from runner.lifecycle.server import Command, Server
from runner.settings import COG_SLOTS
from runner.triton.address import reached_at
from shared.layout import PROJECT_ROOT

_LOOK_SECONDS = 0.2
_GONE_SECONDS = 2  # without a worker, once there was one
_ABSENT_SECONDS = 15  # without a worker, when none was seen


class CogServer(Server):
    """`cog.server.http`, whose worker is runner/run.py.

    If a worker dies before the two have met, it says STARTING for ever: so until then the worker is watched.
    Later the answers of the server are counted: its event loop is not ours, and cannot count turns.
    """

    def command(self, control_path: str, restarts: int) -> Command:
        """As in the base class.

        Cog starts its worker as the first `python` on PATH, so ours must come first. With PYTHONSAFEPATH the
        working directory does not shadow modules of other packages.
        """
        del restarts  # it has no place to report them
        path = os.path.dirname(sys.executable)  # noqa: PTH120 - not resolved: an environment is found by its link
        environment = {
            "COG_MAX_CONCURRENCY": str(COG_SLOTS),
            **os.environ,
            "COG_PREDICT_TYPE_STUB": "run.py:Runner",
            CONTROL: control_path,
            "PATH": os.pathsep.join((path, os.environ.get("PATH", os.defpath))),
            "PORT": str(self.port),
            "PYTHONPATH": os.environ.get("PYTHONPATH") or str(PROJECT_ROOT),
            "PYTHONSAFEPATH": "1",
            "PYTHONUNBUFFERED": "1",
        }
        command = [sys.executable, "-m", "cog.server.http", "--host", self.host]
        return Command(command, environment, PROJECT_ROOT / "runner")

    def close(self) -> None:
        """As in the base class: Cog opens the socket itself."""

    async def wait_until_broken(self, pid: int, connected: asyncio.Event) -> str:
        """As in the base class."""
        seen, last = False, asyncio.get_running_loop().time()
        while not connected.is_set():
            now = asyncio.get_running_loop().time()
            if children(pid):
                seen, last = True, now
            elif now - last > (_GONE_SECONDS if seen else _ABSENT_SECONDS):
                return "has no worker"
            await asyncio.sleep(_LOOK_SECONDS)
        return await super().wait_until_broken(pid, connected)

    async def _wait_until_hung(self, pid: int) -> str:
        answers = Answers(reached_at(self.host), self.port, "/health-check")
        asking = asyncio.create_task(answers.ask())
        try:
            return await wait_until_hung(pid, lambda: answers.count)
        finally:
            asking.cancel()
