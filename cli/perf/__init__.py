"""`cog-triton perf`: a load on any server, and what came of it.

plan (what to do) -> target (how a server is asked) -> load (requests by the clock) -> figures -> findings
-> terminal, JSON, page.
"""
