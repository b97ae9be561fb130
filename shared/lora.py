"""Where LoRA adapters are. Standard library only: engine processes import it."""

from __future__ import annotations

ADAPTERS = "adapters"
"""The folder of an engine's adapters, in its directory: one folder for each, by its name."""
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
"""The files that make a folder an adapter."""
