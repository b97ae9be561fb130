"""Attacks with HTTP itself: browsers' requests, lengths, hosts, paths, keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.security.attack import Attack
from tests.security.wire import HOST, NO_ANSWER, content, head, post, status

if TYPE_CHECKING:
    from collections.abc import Mapping

_MANY = 1000
_BUSY = (429, 503)  # beside other attackers
_BODIES: Mapping[str, bytes] = {
    "/v1/completions": b'{"prompt":"x","max_tokens":1}',
    "/v1/chat/completions": b'{"messages":[{"role":"user","content":"x"}],"max_tokens":1}',
    "/tokenize": b'{"prompt":"x"}',
    "/detokenize": b'{"tokens":[1]}',
    "/predictions": b'{"input":{"prompt":"x","max_tokens":1}}',
}


class BrowserRequests(Attack):
    """7: what any web page can send: text/plain from a foreign origin, and names that are rebound to loopback."""

    async def round(self) -> None:
        await self.repeat(_MANY, 8, self._one)

    async def _one(self, number: int) -> None:
        port = self.target.port
        path, body = [*_BODIES.items()][number % len(_BODIES)]
        if number % 2:
            kind = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data")[number % 3]
            headers = {"Content-Type": kind, "Origin": "https://attacker.example"}
            answer = await self.ask(post(path, port, body, headers))
            wanted = 403
        else:
            headers = {"Content-Type": "application/json", **self.target.authorization}
            request = post(path, port, body, headers)
            request = request.replace(f"Host: {HOST}:{port}".encode(), b"Host: attacker.example", 1)
            answer = await self.ask(request)
            wanted = 200 if self.target.key else 421  # with keys, a page has none
        if status(answer) not in (wanted, *_BUSY):
            self.breaches.append(f"{path}: {status(answer)} instead of {wanted}")


class HttpDetails(Attack):
    """8: lengths of 5,000 digits, no host or two, requests whose client then says no more."""

    async def round(self) -> None:
        port = self.target.port
        body = _BODIES["/tokenize"]
        whole = post("/tokenize", port, body, self.target.authorization)
        host = f"Host: {HOST}:{port}\r\n".encode()
        length = f"Content-Length: {len(body)}".encode()
        cases = [
            (whole.replace(length, b"Content-Length: " + b"9" * 5000), False, {400, 413}),
            (whole.replace(length, b"Content-Length: " + b"0" * 4999 + b"1"), False, {400, 413}),
            (whole.replace(length, b"Content-Length: -1"), False, {400}),
            (whole.replace(length, length + b"\r\n" + length[:-1] + b"9"), False, {400}),
            (whole.replace(length, length + b"\r\nTransfer-Encoding: chunked"), False, {400}),
            (whole.replace(host, b""), False, {400}),
            (whole.replace(host, host * 2), False, {400}),
            (whole.replace(b"Connection: close", b"Connection: keep-alive"), True, {200}),
            (
                whole.replace(b"Connection: close", b"Content-Encoding: gzip\r\nConnection: close"),
                False,
                {415},
            ),
            (whole.replace(b"HTTP/1.1", b"HTTP/1.0").replace(host, b""), False, {200}),
        ]

        async def one(number: int) -> None:
            request, half_close, wanted = cases[number % len(cases)]
            answer = await self.ask(request, half_close=half_close, seconds=10)
            if status(answer) not in (*wanted, *_BUSY):
                self.breaches.append(
                    f"case {number % len(cases)}: {status(answer)} {content(answer)[:80]!r} instead of {wanted}"
                )

        await self.repeat(_MANY, 8, one)


class OddTargets(Attack):
    """Paths that are climbed out of, encoded twice, absolute, or not paths at all."""

    async def round(self) -> None:
        port = self.target.port
        targets = [
            "/v1/models/%2e%2e",
            "/v1/models/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
            "/v1/models/..%c0%af..%c0%afetc/passwd",
            "/../../../../etc/passwd",
            "//etc/passwd",
            "/predictions/%00",
            "/predictions/" + "%2e" * 5000,
            "/predictions/\x1b[31m",
            f"http://{HOST}:{port}/v1/models/../../etc/passwd",
            "http://169.254.169.254/latest/meta-data/",
            "*",
            "/" + "a/" * 10_000,
            "/?" + "a=b&" * 10_000,
        ]
        close = {"Connection": "close", **self.target.authorization}

        async def one(number: int) -> None:
            method = ("GET", "HEAD", "OPTIONS", "TRACE", "DELETE", "PATCH")[number % 6]
            answer = await self.ask(head(method, targets[number % len(targets)], port, close), seconds=10)
            if b"root:" in answer or status(answer) >= 500:
                self.breaches.append(f"{method} {targets[number % len(targets)][:60]!r}: {answer[:80]!r}")

        await self.repeat(_MANY, 8, one)


class KeyGuesses(Attack):
    """5,000 guesses of a key, and of the operator's."""

    async def round(self) -> None:
        port = self.target.port

        async def one(number: int) -> None:
            guess = {"Authorization": f"Bearer guess-{number}", "Content-Type": "application/json"}
            path = ("/v1/models", "/v1/load_lora_adapter", "/predictions/x")[number % 3]
            if number % 3 == 1:
                request = post(path, port, b'{"lora_name":"x","lora_path":"/etc"}', guess)
            else:
                request = head("GET", path, port, {"Connection": "close", **guess})
            answer = await self.ask(request)
            if self.target.key and status(answer) not in (401, 404, 429, NO_ANSWER):
                self.breaches.append(f"{path}: {status(answer)} with a guessed key")

        await self.repeat(5000, 8, one)
