"""Processes that have imported what they need already: forks of one server, which all tests of a process share."""

from __future__ import annotations

import multiprocessing

FORKS = multiprocessing.get_context("forkserver")
# In one place: each call replaces what the one before it has named.
FORKS.set_forkserver_preload(["tests.support.commands", "tests.support.serving"])
