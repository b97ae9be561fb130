"""What follows from the end of a request."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from runner.engines.vllm.engine import VLLMEngine
from runner.protocol.engine import FinishReason, Output


def test_the_core_is_told_that_a_request_has_ended_before_its_adapter_may_go():
    """Another may take the adapter's place at once; the core would read it again, in a step."""
    told = []
    engine: Any = object.__new__(VLLMEngine)
    engine._lock = threading.Lock()
    engine._client = SimpleNamespace(abort_requests=lambda ids: told.append(("abort", *ids)))
    engine._adapters_held = SimpleNamespace(left=lambda core_id: told.append(("left", core_id)))
    stopped = Output(7, [5], FinishReason.STOP_WORDS)
    engine._sequences = {"7": SimpleNamespace(take=lambda _: stopped, ended=True)}
    in_core = SimpleNamespace(request_id="7", finish_reason=None)
    assert engine._take(SimpleNamespace(scheduler_stats=None, outputs=[in_core])) == [stopped]
    assert told == [("abort", "7"), ("left", "7")]
