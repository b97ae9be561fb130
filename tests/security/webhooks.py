"""Attacks with webhooks."""

from __future__ import annotations

from tests.security.attack import Attack
from tests.security.wire import post


class UnansweredNames(Attack):
    """5: 40 predictions with webhooks at names whose DNS never answers."""

    async def round(self) -> None:
        async def one(number: int) -> None:
            asked = {
                "input": {"prompt": "x", "max_tokens": 1},
                "webhook": f"http://hook-{number}.example.com/",
            }
            await self.ask(
                post("/predictions", self.target.port, asked, self.target.authorization), seconds=12
            )

        await self.repeat(40, 40, one)


class HugeWebhooks(Attack):
    """54 predictions, nine with inputs of 8 MB, and reports of each piece of output to a slow receiver; addresses of
    a megabyte, and addresses that are none.
    """

    async def round(self) -> None:
        addresses = [
            self.target.webhook or "http://127.0.0.1:9/",
            "http://example.com/" + "a" * 1_000_000,
            "http://[::1]:1/",
            "http://169.254.169.254/latest/meta-data/",
            "http://\r\nX-Injected: 1/",
            "gopher://127.0.0.1:6379/_FLUSHALL",
        ]

        async def one(number: int) -> None:
            asked = {
                "input": {"prompt": "x" if number % len(addresses) else "x" * 8_000_000, "max_tokens": 20},
                "webhook": addresses[number % len(addresses)],
                "webhook_events_filter": ["start", "output", "logs", "completed"],
            }
            headers = {"Prefer": "respond-async", **self.target.authorization}
            answer = await self.ask(post("/predictions", self.target.port, asked, headers), seconds=30)
            if number % len(addresses) and answer.startswith(b"HTTP/1.1 20"):
                self.breaches.append(f"a webhook to {addresses[number % len(addresses)][:60]!r} was accepted")

        await self.repeat(54, 5, one)
