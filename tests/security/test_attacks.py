"""Each attack against a runner of its own, in ten rounds, with an honest client beside it.

No process dies, no honest answer is lost or late, and memory does not grow. ROUND_SECONDS bounds a round, for CI.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from contextlib import ExitStack

import pytest

from tests.security.catalogue import ATTACKS, FIRST_FOUND
from tests.security.siege import WITH_KEYS, attack_settings, besieged, siege, silent_resolver

ROUND_SECONDS = float(os.environ.get("ROUND_SECONDS") or 600)
AS_ROOT = {"UnansweredNames", "TritonNeighbor"}
KEYED = ("ManyValues", "LongConversations", "AbandonedConversations", "KeyGuesses", "StoredInputs")
_F_SETPIPE_SZ = 1031

pytestmark = pytest.mark.timeout(ROUND_SECONDS * 15 + 300)


def judge(tmp_path, name, **settings):
    if name in AS_ROOT and os.getuid() != 0:
        pytest.skip("only root can do this")
    with ExitStack() as stack:
        prefix = stack.enter_context(silent_resolver(tmp_path)) if name == "UnansweredNames" else []
        output = stack.enter_context(unread_pipe()) if name == "LoggedPrompts" else None
        settings = attack_settings(name) | settings
        server = stack.enter_context(besieged(tmp_path, prefix=prefix, output=output, **settings))
        verdict = asyncio.run(siege(server, name, round_seconds=ROUND_SECONDS))
        print(f"{name}: {verdict}")
    assert verdict.faults == [], str(verdict)


class unread_pipe:  # noqa: N801 - a context manager
    """A pipe of one page that nobody reads."""

    def __enter__(self):
        self._ends = os.pipe()
        fcntl.fcntl(self._ends[1], _F_SETPIPE_SZ, 4096)
        return self._ends[1]

    def __exit__(self, *_):
        for end in self._ends:
            os.close(end)


@pytest.mark.parametrize("name", FIRST_FOUND)
def test_what_once_worked_fails_now(tmp_path, name):
    judge(tmp_path, name)


@pytest.mark.parametrize("name", sorted(ATTACKS.keys() - set(FIRST_FOUND)))
def test_nobody_ends_or_delays_a_runner(tmp_path, name):
    judge(tmp_path, name)


@pytest.mark.parametrize("name", KEYED)
def test_one_key_does_not_delay_another(tmp_path, name):
    judge(tmp_path, name, **WITH_KEYS)


def test_log_lines_cannot_be_forged(tmp_path):
    judge(tmp_path, "ForgedLogLines")
    log = (tmp_path / "log").read_bytes()
    forged = [
        line for line in log.splitlines() if line.lstrip().startswith(b"FORGED-LINE") or b"\x1b[2J" in line
    ]
    assert forged == []
