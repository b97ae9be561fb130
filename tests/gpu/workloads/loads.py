"""The loads: which requests come when, and how long they are. The same for every side, from fixed seeds."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any

from tests.gpu.serving.tokenizer import texts, words

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 20}, "minItems": 2, "maxItems": 6},
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string", "maxLength": 40}, "number": {"type": "integer"}},
            "required": ["street", "number"],
        },
    },
    "required": ["name", "age", "tags", "address"],
    "additionalProperties": False,
}
SYSTEM_TOKENS, USER_TOKENS, TURNS, ANSWER_TOKENS = 1500, 85, 6, 128
# As jinja, with the special tokens of the tokenizer.
CHAT_TEMPLATE = (
    "<s>{% for message in messages %}"
    "{% if message['role'] == 'system' %}[SYSTEM_PROMPT]{{ message['content'] }}[/SYSTEM_PROMPT]"
    "{% elif message['role'] == 'user' %}[INST]{{ message['content'] }}[/INST]"
    "{% else %}{{ message['content'] }}</s>{% endif %}{% endfor %}"
)


@dataclass(frozen=True, slots=True)
class Request:
    """One text to generate: a prompt of its own, or the next turn of a chat."""

    at: float
    """Seconds from the start of the load at which it is due; a turn of a chat is due when the last one ends."""
    words: tuple[int, ...]
    """The tokens of the prompt, or of what the user says in this turn."""
    output_tokens: int
    structured: bool = False


@dataclass(frozen=True, slots=True)
class Load:
    """Requests of several users at once. A user with several requests has a conversation."""

    name: str
    title: str
    users: tuple[tuple[Request, ...], ...]
    is_chat: bool = False


def some_words(chance: random.Random, count: int) -> tuple[int, ...]:
    """So many tokens, whose text has exactly these tokens."""
    return tuple(chance.choices(words(), k=count))


def text_of(tokens: tuple[int, ...]) -> str:
    """The text of such tokens."""
    return "".join(texts()[token] for token in tokens)


def system_prompt() -> str:
    """That of every chat."""
    return text_of(some_words(random.Random(99), SYSTEM_TOKENS)).strip()


def _at_once(name: str, title: str, streams: int, prompt: int, output: int) -> Load:
    chance = random.Random(name)
    users = tuple((Request(0, some_words(chance, prompt), output),) for _ in range(streams))
    return Load(name, title, users)


def _open_loop(name: str, rate: float, seconds: float) -> Load:
    """Arrivals at random times, with lengths as logs of chat services have them: log-normal, with long tails."""
    chance = random.Random(name)
    users = []
    now = 0.0
    while (now := now + chance.expovariate(rate)) < seconds:
        prompt = min(2000, max(16, round(chance.lognormvariate(math.log(220), 0.9))))
        output = min(600, max(8, round(chance.lognormvariate(math.log(140), 0.7))))
        users.append((Request(now, some_words(chance, prompt), output),))
    return Load(name, f"open loop, {rate:g} requests/s, lengths as in logs", tuple(users))


def _chats(name: str, users: int) -> Load:
    chance = random.Random(name)
    turns = tuple(
        tuple(Request(0, some_words(chance, USER_TOKENS), ANSWER_TOKENS) for _ in range(TURNS))
        for _ in range(users)
    )
    title = f"{users} chats of {TURNS} turns with a shared system prompt of {SYSTEM_TOKENS} tokens"
    return Load(name, title, turns, is_chat=True)


def _structured(name: str, streams: int) -> Load:
    chance = random.Random(name)
    users = tuple((Request(0, some_words(chance, 128), 256, structured=True),) for _ in range(streams))
    what = "the first text after a start" if streams == 1 else f"{streams} texts"
    return Load(name, f"{what} held to a JSON schema", users, is_chat=True)


def all_loads(scale: float = 1) -> dict[str, Load]:
    """By name. `scale`: the share of requests, for rehearsals."""

    def count(number: int) -> int:
        return max(2, round(number * scale))

    loads = [
        _at_once("burst", f"{count(512)} at once, 128 tokens in, 256 out", count(512), 128, 256),
        *(_open_loop(f"open-{rate}", max(0.2, rate * scale), 20) for rate in (20, 40, 60)),
        _chats("chats", count(64)),
        _at_once("long", f"{count(32)} prompts of 8,000 tokens at once", count(32), 8000, 64),
        _at_once("many", f"{count(2048)} at once, 64 tokens in, 128 out", count(2048), 64, 128),
        _structured("structured-first", 1),
        _structured("structured", count(64)),
    ]
    return {load.name: load for load in loads}
