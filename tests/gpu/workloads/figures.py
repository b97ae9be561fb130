"""What a load that was played says: rates and quantiles, over all requests and for each turn of a chat."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.gpu.workloads.http_client import Played


def figures_of(played: Sequence[Played], seconds: float) -> dict[str, Any]:
    """Times in milliseconds. Not whole: without a first text, with another status, or without its count of tokens."""
    whole = [one for one in played if one.is_whole]
    tokens = sum(one.tokens for one in whole)
    by_turn: dict[int, list[float]] = defaultdict(list)
    for one in whole:
        by_turn[one.turn].append(_first(one))
    begin, end = min(one.due for one in played), max((one.ended for one in whole), default=0)
    return {
        "requests": len(played),
        "not_whole": len(played) - len(whole),
        "tokens": tokens,
        "tokens_per_second": round(tokens / (end - begin), 1) if whole else 0,
        "first": _quantiles(map(_first, whole)),
        "first_by_turn": {turn: _quantiles(firsts)["p50"] for turn, firsts in sorted(by_turn.items())},
        "seconds": round(seconds, 2),
    }


def _first(one: Played) -> float:
    assert one.first is not None
    return 1e3 * (one.first - one.due)


def _quantiles(values: Iterable[float]) -> dict[str, float]:
    ordered = sorted(values)
    if not ordered:
        return {}
    return {f"p{share}": round(ordered[share * (len(ordered) - 1) // 100], 1) for share in (50, 99)}
