"""Cog's HTTP API, as Cog 0.23 has it; docs/cog-api.md lists where we differ."""
