"""Each in a process of its own: it is the standard streams that change."""

import os
import pty
import subprocess
import sys
import time

from shared.layout import PROJECT_ROOT


def run(program: str, **streams):
    """A Python process that has done the imports of these programs."""
    imports = "import os, subprocess, sys, time\nfrom shared.log_pipe import *\n"
    return subprocess.Popen(
        [sys.executable, "-c", imports + program],
        cwd=PROJECT_ROOT,
        env={**os.environ, "COLUMNS": "80"},
        **streams,
    )


def ended(program: str):
    """What such a process writes to both streams."""
    with run(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        written = process.communicate(timeout=30)
    assert process.returncode == 0, written
    return written


def test_what_a_process_and_its_children_write_arrives_in_order():
    program = """
with never_block(1, 2):
    for number in range(2000):
        print(number, file=sys.stderr, flush=True)
        if number % 500 == 0:
            subprocess.run("echo child >&2; echo output", shell=True, check=True)
    print("last", file=sys.stderr, end="")
print("after", file=sys.stderr)
"""
    out, err = ended(program)
    lines = err.decode().splitlines()
    assert lines.count("child") == 4
    assert [line for line in lines if line != "child"] == [*map(str, range(2000)), "last", "after"]
    assert out == b"output\n" * 4


def test_a_long_line_is_cut_and_a_line_without_an_end_is_shown_soon():
    program = """
with never_block(2):
    os.write(2, b"x" * 100_000 + b"\\n")
    os.write(2, b"50%")
    sys.stdin.read(1)
"""
    with run(program, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        read = b""
        while not read.endswith(b"50%"):
            read += os.read(process.stderr.fileno(), 1 << 16)
        process.communicate(b"x", timeout=30)
    (line, _) = read.splitlines()
    assert len(line) < 4096
    assert line.endswith(b" bytes left out]")


def test_an_end_waits_a_second_for_a_reader():
    reading, writing = os.pipe()
    program = """
with never_block(2):
    for number in range(300):
        os.write(2, b"x" * 1000 + b"\\n")
    began = time.monotonic()
os.write(2, b"to nowhere")
print(time.monotonic() - began)
"""
    with run(program, stdout=subprocess.PIPE, stderr=writing) as process:
        took = float(process.stdout.read())
    os.close(reading)
    os.close(writing)
    assert 0.9 < took < 3


def test_a_child_that_lives_on_does_not_delay_an_end():
    program = """
with never_block(2):
    child = subprocess.Popen(["sleep", "30"])
    began = time.monotonic()
took = time.monotonic() - began
child.kill()
print(took)
"""
    out, _ = ended(program)
    assert float(out) < 0.5


def test_a_terminal_is_still_known_as_one_by_the_process_and_its_children():
    program = """
with never_block(2):
    code = "from shared.log_pipe import *; print(stderr_is_terminal())"
    here = [sys.executable, "-c", code]
    print(stderr_is_terminal(), flush=True)
    subprocess.run(here, check=True)
    subprocess.run(here, check=True, stderr=subprocess.DEVNULL)
    print(sys.stderr.isatty())
"""
    master, terminal = pty.openpty()
    os.set_inheritable(terminal, True)
    with run(program, stdout=subprocess.PIPE, stderr=terminal) as process:
        out = process.stdout.read().split()
    os.close(master)
    os.close(terminal)
    assert out == [b"True", b"True", b"False", b"False"]


def test_without_a_terminal_there_is_none():
    out, _ = ended("with never_block(2): print(stderr_is_terminal())")
    assert out == b"False\n"


def test_a_pipe_that_is_not_to_be_waited_for_loses_nothing():
    """Whoever shares it may have set O_NONBLOCK, which is then ours too."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    program = """
with never_block(2):
    for number in range(500):
        os.write(2, b"%03d " % number + b"x" * 996 + b"\\n")
    print("written", flush=True)
    sys.stdin.read()
"""
    with run(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=writing) as process:
        os.close(writing)
        process.stdout.readline()
        time.sleep(0.2)
        process.stdin.close()
        with os.fdopen(reading, "rb") as reader:
            text = reader.read()
    assert [int(line[:3]) for line in text.splitlines()] == list(range(500))
