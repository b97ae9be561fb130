"""Loads as real clients make them, on a GPU, for cog-triton and its peers."""
