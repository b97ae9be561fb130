"""A process that attacks: `python -m tests.security.attacker NAME TARGET`, with the target as JSON.

Each line of its standard input is a number of seconds: it does a round that takes at most so long, and prints
what came of it as a line of JSON. It ends with its standard input, whatever it is doing.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import threading

from tests.security.attack import Target
from tests.security.catalogue import ATTACKS

_NICE = 10
_SHOWN = 20


def main() -> None:
    """Attack until standard input ends."""
    name, target = sys.argv[1:]
    os.nice(_NICE)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(_attack(name, Target(**json.loads(target))))


async def _attack(name: str, target: Target) -> None:
    attack = ATTACKS[name](target)
    if attack.user is not None and os.getuid() == 0:
        os.setgroups([])
        os.setresgid(attack.user, attack.user, attack.user)
        os.setresuid(attack.user, attack.user, attack.user)
    orders: asyncio.Queue[float] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    threading.Thread(target=_take_orders, args=(loop, orders), daemon=True).start()
    while True:
        seconds = await orders.get()
        finished = True
        try:
            async with asyncio.timeout(seconds):
                await attack.round()
        except TimeoutError:
            finished = False
        result = {
            "counts": attack.counts,
            "breaches": attack.breaches[:_SHOWN],
            "finished": finished,
        }
        print(json.dumps(result), flush=True)
        attack.counts.clear()
        attack.breaches.clear()


def _take_orders(loop: asyncio.AbstractEventLoop, orders: asyncio.Queue[float]) -> None:
    for line in sys.stdin:
        loop.call_soon_threadsafe(orders.put_nowait, float(line))
    os._exit(0)


if __name__ == "__main__":
    main()
