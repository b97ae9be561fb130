"""Attacks with bodies: large, deep, costly to read, and abandoned."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING

from tests.security.attack import Attack
from tests.security.wire import connected, post

if TYPE_CHECKING:
    from tests.security.attack import Target

_MOST = 16 << 20
_PATHS = ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize", "/predictions")


def conversation(messages: int = 16_384, characters: int = 50) -> bytes:
    """A body of /tokenize with so many messages."""
    one = {"role": "user", "content": "x" * characters}
    return json.dumps({"messages": [one] * messages}).encode()


class ManyValues(Attack):
    """1c: bodies of 16 MiB that hold millions of empty lists; 20 of them."""

    async def round(self) -> None:
        body = b"[" + b"[]," * ((_MOST - 16) // 3) + b"[]]"
        requests = [post(path, self.target.port, body, self.target.authorization) for path in _PATHS]
        await self.repeat(20, 10, lambda number: self.ask(requests[number % len(requests)]))


class LongConversations(Attack):
    """1c: 240 bodies of 1.5 MB with 16,384 messages, to /tokenize."""

    async def round(self) -> None:
        request = post("/tokenize", self.target.port, conversation(), self.target.authorization)
        await self.repeat(240, 40, lambda _: self.ask(request))


class AbandonedConversations(Attack):
    """6: 240 large conversations whose client closes the connection at once."""

    async def round(self) -> None:
        request = post("/tokenize", self.target.port, conversation(), self.target.authorization)

        async def one(_: int) -> None:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(20), connected(self.target.port) as (_reader, writer):
                    writer.write(request)
                    writer.transport.set_write_buffer_limits(0)
                    await writer.drain()
                    self.counts["left"] += 1

        await self.repeat(240, 40, one)


class RepeatedTokens(Attack):
    """Prompts of 4 MiB that are one token again and again, to be cut: ten of them."""

    async def round(self) -> None:
        prompts = ("1 " * (2 << 20), "a" * (4 << 20), "\u0301" * (1 << 20))
        requests = [
            post("/tokenize", self.target.port, {"prompt": prompt}, self.target.authorization)
            for prompt in prompts
        ]
        requests += [
            post(
                "/predictions", self.target.port, {"input": {"prompt": prompts[0]}}, self.target.authorization
            )
        ]
        await self.repeat(10, 4, lambda number: self.ask(requests[number % len(requests)]))


class ExtremeParameters(Attack):
    """Every parameter that takes many values, or a large one, at its extreme: four times each."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        asked = [{"prompt": "x", "max_tokens": 1, **more} for more in _extremes()]
        self._requests = [post("/v1/completions", target.port, body, target.authorization) for body in asked]

    async def round(self) -> None:
        requests = self._requests
        await self.repeat(4 * len(requests), 4, lambda number: self.ask(requests[number % len(requests)]))


def _extremes() -> list[dict[str, object]]:
    deep: object = {}
    for _ in range(200):
        deep = {"properties": {"a": deep}}
    recursive = {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 50}}}
    wide = {"properties": {str(number): {"type": "string"} for number in range(200_000)}}
    schemas = [deep, recursive, wide]
    return [
        {"n": 128},
        {"n": 2048},
        {"prompt": ["x"] * 2048},
        {"prompt": ["x"] * 1_000_000},
        {"logit_bias": {str(number): 1 for number in range(300_000)}},
        {"stop": [f"stop-{number}" for number in range(100_000)]},
        {"stop": ["a" * 1_000_000]},
        {"guided_choice": [str(number) for number in range(500_000)]},
        {"guided_regex": "(a|a)*" * 20_000 + "b"},
        {"guided_regex": "(((((a{1,100}){1,100}){1,100}){1,100}){1,100})"},
        {"guided_grammar": "root ::= " + "root | " * 20_000 + '"a"'},
        {"cache_salt": "a" * 1_000_000},
        {"seed": 10**300},
        {"max_tokens": 10**300},
        {"prompt": list(range(1_000_000))},
        {"unknown" * 100_000: 1},
        {f"unknown-{number}": 1 for number in range(100_000)},
        *map(_following, schemas),
    ]


def _following(schema: object) -> dict[str, object]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}}
