"""Where LoRA adapters are. Standard library only: engine processes import it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

ADAPTERS = "adapters"
"""The folder of an engine's adapters, in its directory: one folder for each, by its name."""
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
"""The files that make a folder an adapter."""


def is_adapter(folder: Path) -> bool:
    """Whether it has both files. Raises ValueError for a path with NUL."""
    return all((folder / part).is_file() for part in (CONFIG, WEIGHTS))
