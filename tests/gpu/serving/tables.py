"""The tables of docs/performance-gpu.md: a row for each side, a column for each number of streams."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

SIDES = {
    "async_llm": "vLLM's engine, driven directly",
    "runner, openai": "our front, OpenAI's API",
    "runner, cog": "our front, Cog's API",
    "serve_rust": "`vllm serve`, Rust front",
    "serve": "`vllm serve`, Python front",
}

Figure = dict[str, Any]
Runs = dict[tuple[str, int], list[Figure]]


def table(
    title: str, runs: Runs, cell: Callable[[int, list[Figure]], str], names: dict[str, str] | None = None
) -> str:
    streams = sorted({count for _, count in runs})
    rows = [[title, *map(str, streams)]]
    for side, name in (names or SIDES).items():
        if any(one == side for one, _ in runs):
            found = (runs.get((side, count)) for count in streams)
            rows.append(
                [
                    name,
                    *(
                        "" if one is None else cell(count, one)
                        for count, one in zip(streams, found, strict=True)
                    ),
                ]
            )
    head, *body = (f"| {' | '.join(row)} |\n" for row in rows)
    return "".join([head, "|---" * len(rows[0]) + "|\n", *body])


def rates(title: str, runs: Runs) -> str:
    """Tokens per second, and what share that is of the engine's own in the same call: machines differ."""

    def by_call(found: list[Figure]) -> dict[int, float]:
        calls: dict[int, list[float]] = defaultdict(list)
        for run in found:
            calls[run["call"]].append(run["tokens_per_second"])
        return {call: median(rates) for call, rates in calls.items()}

    def cell(count: int, found: list[Figure]) -> str:
        direct = by_call(runs.get(("async_llm", count), []))
        shares = [rate / direct[call] for call, rate in by_call(found).items() if call in direct]
        share = f" ({median(shares):.2f})" if shares else ""
        return f"{median(run['tokens_per_second'] for run in found):,.0f}{share}"

    return table(title, runs, cell)


def times(title: str, runs: Runs, key: str, digits: int, names: dict[str, str] | None = None) -> str:
    """Two quantiles in milliseconds."""

    def cell(_: int, found: list[Figure]) -> str:
        both = (1e3 * median(run[key][name] for run in found) for name in ("p50", "p99"))
        return " / ".join(f"{value:.{digits}f}" for value in both)

    return table(title, {place: found for place, found in runs.items() if found[0].get(key)}, cell, names)


def cpu(title: str, runs: Runs, *, core: bool) -> str:
    """Of vLLM's engine core, or of all other processes together."""

    def used(run: Figure) -> float:
        roles: dict[str, float] = run["cpu_us_per_token"]
        return sum(
            value for role, value in roles.items() if (role == "engine core") == core and role != "workers"
        )

    def cell(_: int, found: list[Figure]) -> str:
        return f"{median(map(used, found)):.0f}"

    told = {place: found for place, found in runs.items() if "cpu_us_per_token" in found[0]}
    return table(title, told, cell)


def comparable(runs: Runs) -> Runs:
    """Machines differ: of each number of streams only the calls that had the most sides."""
    sides: dict[int, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for (side, count), found in runs.items():
        for run in found:
            sides[count][run["call"]].add(side)

    def is_kept(run: Figure) -> bool:
        calls = sides[run["streams"]]
        return len(calls[run["call"]]) == max(map(len, calls.values()))

    kept = {place: list(filter(is_kept, found)) for place, found in runs.items()}
    return {place: found for place, found in kept.items() if found}
