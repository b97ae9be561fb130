"""A supervisor that keeps the stub of a front: `python -m tests.support.stub_runner PORT [--end-on-failure]`."""

from __future__ import annotations

import asyncio
import os
import sys

from runner.lifecycle import liveness, restarts
from runner.lifecycle.run_directory import run_directory
from runner.lifecycle.server import Command, Front
from runner.lifecycle.supervisor import Supervisor
from shared.errors import CogTritonError


class Stub(Front):
    liveness_path = "/"

    def command(self, control_path):
        command = super().command(control_path)
        arguments = [word.replace("runner.front", "tests.support.stub_front") for word in command.arguments]
        return Command(arguments, os.environ, pass_fds=command.pass_fds)


async def main() -> None:
    restarts._PAUSES = (0.1,) * 5  # type: ignore[assignment] # shorter than users have them
    liveness._DEADLINE_SECONDS = 1
    with run_directory() as directory:
        server = Stub("127.0.0.1", int(sys.argv[1]))
        await Supervisor(directory, server, end_on_failure="--end-on-failure" in sys.argv).run()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except CogTritonError as error:
        sys.exit(str(error))
