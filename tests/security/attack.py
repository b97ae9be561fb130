"""What an attack is: rounds of a stated volume against one runner, and what came back."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tests.security.wire import exchange, status

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

NOBODY = 65534


@dataclass(frozen=True)
class Target:
    """A runner as attackers know it."""

    port: int
    key: str | None = None
    """The attacker's own, where keys are needed."""
    triton_http_port: int | None = None
    triton_grpc_port: int | None = None
    pids: tuple[int, ...] = ()
    """Its processes, as `ps` shows them to everybody."""
    ports: tuple[int, ...] = ()
    """All on which one of them listens."""
    webhook: str | None = None
    """An address that the operator allows."""

    @property
    def authorization(self) -> dict[str, str]:
        """The headers with the key."""
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}


class Attack:
    """One kind of attack. Its name is the class's; the docstring says what it does.

    `settings`: what the runner needs for it. `user`: as whom it runs, if not as the one who started it.
    """

    settings: ClassVar[Mapping[str, str]] = {}
    user: ClassVar[int | None] = None

    def __init__(self, target: Target) -> None:
        self.target = target
        self.counts: Counter[str] = Counter()
        """Answers by their status, and whatever else is worth a number."""
        self.breaches: list[str] = []
        """What was achieved and must not be."""

    async def round(self) -> None:
        """Do it once, in the stated volume. May be cancelled."""
        raise NotImplementedError

    async def ask(self, data: bytes, *, seconds: float = 60, half_close: bool = False) -> bytes:
        """Send this to the runner over a connection of its own, count the answer and return it."""
        answer = await exchange(self.target.port, data, seconds=seconds, half_close=half_close)
        self.counts[str(status(answer))] += 1
        return answer

    async def repeat(self, times: int, at_once: int, one: Callable[[int], Awaitable[object]]) -> None:
        """`one(number)` so many times, a few side by side."""
        numbers = iter(range(times))

        async def work() -> None:
            for number in numbers:
                await one(number)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(at_once, times)):
                group.create_task(work())
