"""From COG_WEIGHTS to an unpacked engine."""

from .fetch import fetch_weights

__all__ = ["fetch_weights"]
