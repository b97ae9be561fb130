"""Attackers that never stop, beside other loads: those that hold no place that another client needs."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.security import bodies, connections, predictions, protocol
from tests.security.siege import Verdict, attacking

if TYPE_CHECKING:
    from tests.security.attack import Target

_ROUND_SECONDS = 10
_MOMENT_SECONDS = 1.5
_ATTACKS = (
    bodies.AbandonedConversations,
    bodies.ExtremeParameters,
    bodies.LongConversations,
    bodies.ManyValues,
    connections.HugeHeaders,
    connections.PipelinedRequests,
    connections.PipelinedUpgrades,
    connections.SlowHeads,
    connections.UnreadAnswers,
    predictions.UnknownPredictions,
    protocol.HttpDetails,
    protocol.OddTargets,
)


async def attack_for_ever(target: Target, verdict: Verdict, seed: int) -> None:
    """One attack after another, in processes of their own, until this is cancelled."""
    choice = random.Random(seed)
    while True:
        async with attacking(choice.choice(_ATTACKS).__name__, target) as attacker:
            await attacker.round(_ROUND_SECONDS, verdict)


async def attack_once(target: Target, verdict: Verdict) -> None:
    """All of these attacks for a moment each: what a process needs for them, it has after that."""
    for attack in _ATTACKS:
        async with attacking(attack.__name__, target) as attacker:
            await attacker.round(_MOMENT_SECONDS, verdict)
