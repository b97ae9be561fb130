"""`cog-triton perf`: load on a server of anybody's, and what came of it.

plan (what to do) -> target (how a server is asked) -> load (requests by the clock) -> figures -> findings
-> terminal, JSON, page.
"""
