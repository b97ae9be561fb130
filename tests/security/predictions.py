"""Attacks with Cog's predictions: the same one again, cancels, and inputs that are kept."""

from __future__ import annotations

from tests.security.attack import Attack
from tests.security.wire import head, post


class RepeatedPuts(Attack):
    """3,000 requests for the same few predictions, beside requests that cancel them."""

    async def round(self) -> None:
        async def one(number: int) -> None:
            path = f"/predictions/again-{number % 5}"
            asked = {"input": {"prompt": "<tokens_per_second> 50", "max_tokens": 100}}
            if number % 3 == 0:
                await self.ask(post(f"{path}/cancel", self.target.port, b"", self.target.authorization))
                return
            headers = {"Prefer": "respond-async", **self.target.authorization}
            await self.ask(post(path, self.target.port, asked, headers).replace(b"POST", b"PUT", 1))

        await self.repeat(3000, 20, one)


class StoredInputs(Attack):
    """50 predictions without a client, each with an input of 8 MB that can be looked up afterwards."""

    async def round(self) -> None:
        body = {"input": {"prompt": "x" * 8_000_000, "max_tokens": 1}}
        headers = {"Prefer": "respond-async", **self.target.authorization}
        request = post("/predictions", self.target.port, body, headers)
        await self.repeat(50, 4, lambda _: self.ask(request))


class StoredAnswers(Attack):
    """2,000 predictions without a client, which run side by side and are looked up by nobody."""

    async def round(self) -> None:
        body = {"input": {"prompt": "x", "max_tokens": 100}}
        headers = {"Prefer": "respond-async", **self.target.authorization}
        request = post("/predictions", self.target.port, body, headers)
        await self.repeat(2000, 20, lambda _: self.ask(request))


class UnknownPredictions(Attack):
    """3,000 look-ups and cancels of predictions that do not exist."""

    async def round(self) -> None:
        close = {"Connection": "close", **self.target.authorization}

        async def one(number: int) -> None:
            path = f"/predictions/{'a' * 1000}{number}"
            await self.ask(head("GET", path, self.target.port, close))
            await self.ask(post(f"{path}/cancel", self.target.port, b"", self.target.authorization))

        await self.repeat(1500, 20, one)
