"""What answers Triton's own clients (runner/front/triton), as the supervisor starts and watches it."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from runner.lifecycle.heartbeat import Heartbeat
from runner.lifecycle.liveness import HUNG_SECONDS, wait_until_hung
from runner.lifecycle.server import Command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.lifecycle.processes import Process


class Gate:
    """One after another of these processes."""

    def __init__(self, command: Sequence[str], hung_seconds: float = HUNG_SECONDS) -> None:
        """`command`: without the file of its heartbeat."""
        self._arguments = command
        self._hung_seconds = hung_seconds
        self._heartbeat_fd = Heartbeat.create()
        self._heartbeat = Heartbeat(self._heartbeat_fd)

    def command(self) -> Command:
        """How to start one."""
        arguments = [*self._arguments, "--heartbeat-fd", str(self._heartbeat_fd)]
        return Command(arguments, os.environ, pass_fds=[self._heartbeat_fd])

    async def wait_until_useless(self, process: Process) -> str:
        """Wait until it ends or hangs; return how, in words."""
        turns = self._heartbeat
        hung = asyncio.create_task(wait_until_hung(process.pid, lambda: turns.count, self._hung_seconds))
        ended = asyncio.create_task(process.ended.wait())
        try:
            await asyncio.wait({hung, ended}, return_when=asyncio.FIRST_COMPLETED)
            return f"ended with {process.status}" if ended.done() else hung.result()
        finally:
            hung.cancel()
            ended.cancel()
