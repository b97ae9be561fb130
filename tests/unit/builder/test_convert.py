import ctypes
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from builder.convert import run_child
from shared.errors import CheckpointInvalid, ConversionFailed, HostMemoryExhausted


def run(program, tmp_path, on_line=lambda line: None):
    run_child("convert", [sys.executable, "-c", program], cwd=tmp_path, on_line=on_line)


def ends(pid: str) -> bool:
    """Whether the process has ended, or does so within 30 s."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


def test_lines_arrive_in_order(tmp_path):
    lines = []
    run("print('progress 1 2'); print(); print('progress 2 2')", tmp_path, lines.append)
    assert lines == ["progress 1 2", "progress 2 2"]


def test_coded_error_passes(tmp_path):
    text = str(CheckpointInvalid(reason="a tensor is missing"))
    with pytest.raises(CheckpointInvalid, match="a tensor is missing"):
        run(f"import sys; print('hint', file=sys.stderr); sys.exit({text!r})", tmp_path)


def test_other_failure_names_the_last_line_without_folders(tmp_path):
    with pytest.raises(ConversionFailed) as caught:
        run("raise OSError('cannot read /secret/place/model.bin')", tmp_path)
    assert "ended with status 1: OSError: cannot read model.bin" in str(caught.value)


def test_silent_failure(tmp_path):
    with pytest.raises(ConversionFailed, match="status 3: it printed nothing"):
        run("raise SystemExit(3)", tmp_path)


@pytest.mark.parametrize(("number", "error"), [(9, HostMemoryExhausted), (11, ConversionFailed)])
def test_signal_is_named(tmp_path, number, error):
    with pytest.raises(error, match=signal.Signals(number).name):
        run(f"import os; os.kill(os.getpid(), {number})", tmp_path)


def test_child_gets_no_secrets(tmp_path, monkeypatch):
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "hunter2")
    lines = []
    run("import os; print(dict(os.environ))", tmp_path, lines.append)
    assert "hunter2" not in "".join(lines)


FAMILY = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
print(child.pid, flush=True)
time.sleep(300)
"""


def test_an_exception_ends_the_whole_process_tree(tmp_path):
    pids = []

    def on_line(line):
        pids.append(line)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(FAMILY, tmp_path, on_line)
    assert ends(pids[0])


def test_cancel_reaches_a_thread_that_waits_for_a_silent_child(tmp_path):
    class CancelledError(BaseException):
        pass

    pids = []
    caught = []
    started = threading.Event()

    def on_line(line):
        pids.append(line)
        started.set()

    def target():
        try:
            run(FAMILY, tmp_path, on_line)
        except CancelledError as error:
            caught.append(error)

    thread = threading.Thread(target=target)
    thread.start()
    assert started.wait(30)
    # What Cog does to a prediction that is cancelled.
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(CancelledError))
    thread.join(30)
    assert caught
    assert ends(pids[0])
