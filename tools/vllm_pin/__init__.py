"""Moves the version of vLLM, and says what changes with it for the engine that drives it."""
