"""Attacks on the log: what fills it, and what forges its lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tests.security.attack import Attack
from tests.security.wire import head, post

if TYPE_CHECKING:
    from collections.abc import Mapping


class LoggedPrompts(Attack):
    """4: 1 MB of log lines (LOG_PROMPTS), where nobody reads the log."""

    settings: ClassVar[Mapping[str, str]] = {"LOG_PROMPTS": "true"}

    async def round(self) -> None:
        asked = {"input": {"prompt": "x" * 10_000, "max_tokens": 1, "log_performance_metrics": True}}
        request = post("/predictions", self.target.port, asked, self.target.authorization)
        await self.repeat(100, 10, lambda _: self.ask(request))


class ForgedLogLines(Attack):
    """500 requests whose identifiers hold line ends and terminal escapes, wherever a log line may show them."""

    settings: ClassVar[Mapping[str, str]] = {"LOG_PROMPTS": "true"}
    marker = "FORGED-LINE"

    async def round(self) -> None:
        forged = f"x\n{self.marker}\r{self.marker}\x1b[2J\x1b]0;{self.marker}\x07\u2028{self.marker}\x85{self.marker}"
        port, close = self.target.port, {"Connection": "close", **self.target.authorization}

        def requests() -> list[bytes]:
            inputs = {"prompt": forged, "max_tokens": 1, "lora": forged}
            latin = forged.encode("latin-1", "ignore").decode("latin-1").replace("\n", "").replace("\r", "")
            return [
                post("/predictions", port, {"id": forged, "input": inputs}, close),
                post(
                    "/predictions",
                    port,
                    {"input": {"prompt": forged, "max_tokens": 1}, "webhook": forged},
                    close,
                ),
                post("/predictions", port, {"input": {forged: 1}}, close),
                post("/v1/completions", port, {"model": forged, "prompt": "x"}, close),
                post("/v1/completions", port, {"prompt": "x", forged: 1}, close),
                head("GET", f"/predictions/{latin.replace(' ', '')}", port, close),
                head("GET", "/health/ready", port, {"X-Request-Id": latin, "User-Agent": latin, **close}),
            ]

        made = requests()
        await self.repeat(500, 8, lambda number: self.ask(made[number % len(made)]))
