import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from builder.child import follow_child
from shared.layout import PROJECT_ROOT
from tests.support.processes import descendants, is_alive
from tests.support.waiting import wait_for


def follow(program, tmp_path, on_line, **options):
    command = [sys.executable, "-c", program]
    return follow_child(command, cwd=tmp_path, env={}, on_line=on_line, **options)


def test_both_outputs_arrive_in_their_order(tmp_path):
    lines = []
    program = """
import os
for number in range(100):
    os.write(1 + number % 2, b"%d\\n" % number)
"""
    assert follow(program, tmp_path, lines.append).status == 0
    assert lines == [str(number) for number in range(100)]


def test_a_progress_bar_is_lines_too(tmp_path):
    lines = []
    follow(r"print('1%\r2%\r\n', end='3%')", tmp_path, lines.append)
    assert lines == ["1%", "2%", "3%"]


def test_a_line_without_end_arrives_in_pieces(tmp_path):
    lines = []
    follow("print('x' * 300_000, end='')", tmp_path, lines.append)
    assert "".join(lines) == "x" * 300_000
    assert max(map(len, lines)) <= 200_000


def test_time_and_memory_are_measured(tmp_path):
    ended = follow("import time; x = b'1' * 300_000_000; time.sleep(0.3)", tmp_path, print)
    assert ended.seconds >= 0.3
    assert 300_000_000 < ended.peak_memory < 2_000_000_000


def test_polls_while_the_child_is_silent(tmp_path):
    polls = []
    follow("import time; time.sleep(1)", tmp_path, print, on_poll=lambda: polls.append(time.monotonic()))
    assert len(polls) >= 2


LEAVES_ONE = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
print(child.pid, flush=True)
"""


def test_what_the_child_leaves_behind_is_not_waited_for_but_ended(tmp_path):
    pids = []
    assert follow(LEAVES_ONE, tmp_path, pids.append).status == 0
    assert not is_alive(pids[0])


def test_an_exception_reaches_processes_in_sessions_of_their_own(tmp_path):
    pids = []

    def on_line(line):
        pids.append(line)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        follow(f"{LEAVES_ONE}\nimport time; time.sleep(300)", tmp_path, on_line)
    assert not is_alive(pids[0])


FOLLOWER = """
import sys
from builder.child import follow_child
follow_child([sys.executable, "-c", sys.argv[1]], cwd="/", env={}, on_line=print)
"""


def test_nothing_is_left_when_the_builder_is_killed(tmp_path):
    program = f"{LEAVES_ONE}\nimport time; time.sleep(300)"
    with subprocess.Popen([sys.executable, "-c", FOLLOWER, program], cwd=PROJECT_ROOT) as follower:
        try:
            wait_for(lambda: len(descendants(follower.pid)) == 3)  # the guard, the child, and what that left
            started = descendants(follower.pid)
        finally:
            follower.kill()
    wait_for(lambda: not [pid for pid in started if is_alive(pid)])


def test_a_guard_that_is_killed_takes_the_child_with_it(tmp_path):
    pids = []

    def on_line(line):
        pids.append(int(line))
        os.kill(int(parent_of(pids[0])), signal.SIGKILL)

    ended = follow("import os, time; print(os.getpid(), flush=True); time.sleep(300)", tmp_path, on_line)
    assert ended.status == -signal.SIGKILL
    wait_for(lambda: not is_alive(pids[0]))


def parent_of(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]


def test_a_missing_program_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        follow_child([str(tmp_path / "none")], cwd=tmp_path, env={}, on_line=print)
