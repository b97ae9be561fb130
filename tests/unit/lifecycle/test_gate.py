"""What answers Triton's own clients is watched."""

from __future__ import annotations

import asyncio
import sys

import pytest

from runner.lifecycle.gate import Gate
from runner.lifecycle.processes import Processes


@pytest.mark.parametrize(
    ("program", "how"),
    [
        ("import time; time.sleep(60)", "has made no progress for 0.2 s"),
        ("raise SystemExit(3)", "ended with status 3"),
    ],
)
def test_it_is_useless_once_it_hangs_or_has_ended(program, how):
    async def run() -> str:
        processes = Processes()
        gate = Gate([sys.executable, "-c", program], hung_seconds=0.2)
        command = gate.command()
        process = processes.start(command.arguments, command.environment, pass_fds=command.pass_fds)
        try:
            return await asyncio.wait_for(gate.wait_until_useless(process), 30)
        finally:
            await processes.end_all()

    assert asyncio.run(run()).startswith(how)
