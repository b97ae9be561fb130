"""Checks deploy/ against what it refers to: the schemas of its resources, and our own code."""
