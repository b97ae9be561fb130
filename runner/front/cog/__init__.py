"""Cog's HTTP API, as Cog 0.23 has it; docs/serving.md lists where we differ."""
