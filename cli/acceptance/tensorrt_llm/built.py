"""What trtllm-build wrote."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shared.artifact import EngineDirectory


def config_of(engine: EngineDirectory) -> dict[str, Any]:
    """The config.json beside its plans."""
    content: dict[str, Any] = json.loads((engine.path / "engine/config.json").read_bytes())
    return content
