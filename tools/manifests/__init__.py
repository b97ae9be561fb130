"""Holds deploy/ against what it names: the schemas of its resources, and our own code."""
