"""All attacks, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.security import bodies, connections, logs, predictions, protocol, triton_requests, webhooks

if TYPE_CHECKING:
    from tests.security.attack import Attack

_PUBLISHED: tuple[type[Attack], ...] = (
    connections.PipelinedUpgrades,
    connections.PipelinedRequests,
    bodies.ManyValues,
    bodies.LongConversations,
    triton_requests.TritonNeighbor,
    triton_requests.TritonBodies,
    logs.LoggedPrompts,
    webhooks.UnansweredNames,
    bodies.AbandonedConversations,
    protocol.BrowserRequests,
    protocol.HttpDetails,
)
_OTHERS: tuple[type[Attack], ...] = (
    bodies.ExtremeParameters,
    bodies.RepeatedTokens,
    connections.HugeHeaders,
    connections.IdleConnections,
    connections.SlowBodies,
    connections.SlowHeads,
    connections.UnreadAnswers,
    connections.UnreadReplays,
    connections.UnreadStreams,
    logs.ForgedLogLines,
    predictions.RepeatedPuts,
    predictions.StoredAnswers,
    predictions.StoredInputs,
    predictions.UnknownPredictions,
    protocol.KeyGuesses,
    protocol.OddTargets,
    webhooks.HugeWebhooks,
)
ATTACKS: dict[str, type[Attack]] = {kind.__name__: kind for kind in (*_PUBLISHED, *_OTHERS)}
"""Every attack."""
FIRST_FOUND: tuple[str, ...] = tuple(kind.__name__ for kind in _PUBLISHED)
"""Those that once worked: each is tried alone."""
