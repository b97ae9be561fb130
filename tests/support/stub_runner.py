"""A supervisor that keeps another front: `python -m tests.support.stub_runner PORT [--end-on-failure]`.

`--front`: its module, by default that of the stub; `--hung-seconds`: when it counts as hung. While the file
STUB_RUNNER_FULL exists, no process can be started, as on a machine that has too many.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import os
import sys
from pathlib import Path

from runner.lifecycle import restarts, supervisor
from runner.lifecycle.liveness import HUNG_SECONDS
from runner.lifecycle.processes import Processes
from runner.lifecycle.run_directory import run_directory
from runner.lifecycle.server import Command, Front
from runner.lifecycle.supervisor import Supervisor
from shared.errors import CogTritonError


class Stub(Front):
    module: str

    def command(self, control_path, deaths):
        command = super().command(control_path, deaths)
        arguments = [word.replace("runner.front", self.module) for word in command.arguments]
        return Command(arguments, os.environ, pass_fds=command.pass_fds)


class FullMachine(Processes):
    def start(self, *arguments, **options):
        if "STUB_RUNNER_FULL" in os.environ and Path(os.environ["STUB_RUNNER_FULL"]).exists():
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return super().start(*arguments, **options)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--end-on-failure", action="store_true")
    parser.add_argument("--front", default="tests.support.stub_front")
    parser.add_argument("--hung-seconds", type=float, default=HUNG_SECONDS)
    options = parser.parse_args()
    restarts._PAUSES = (0.1,) * 5  # type: ignore[assignment] # shorter than users have them
    supervisor.Processes = FullMachine  # type: ignore[attr-defined] # a stand-in
    Stub.module = options.front
    with run_directory() as directory:
        server = Stub("127.0.0.1", options.port, hung_seconds=options.hung_seconds)
        await Supervisor(directory, server, end_on_failure=options.end_on_failure).run()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except CogTritonError as error:
        sys.exit(str(error))
