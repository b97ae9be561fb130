"""What a library writes to descriptors 1 and 2 while it loads is kept, and still reaches the log immediately."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from runner.engines.tensorrt_llm.overhearing import overhearing
from shared.layout import PROJECT_ROOT
from tests.support.waiting import wait_for


def test_all_that_is_written_is_overheard_and_goes_on_to_stderr(capfd):
    with overhearing() as overheard:
        os.write(1, b"of the library\n")
        subprocess.run([sys.executable, "-c", "print('of a child')"], check=True)
    os.write(1, b"after\n")
    assert overheard.text == "of the library\nof a child\n"
    assert capfd.readouterr() == ("after\n", overheard.text)


def test_more_than_a_pipe_holds_blocks_nobody(capfd):
    with overhearing() as overheard:
        for number in range(200_000):
            os.write(2, b"line %d\n" % number)
    assert overheard.text.endswith("line 199999\n")
    assert len(overheard.text) == 1 << 20
    assert capfd.readouterr().err.count("\n") == 200_000


def test_an_error_ends_it_too():
    def load():
        with overhearing() as overheard:
            told.append(overheard)
            os.write(1, b"why\n")
            raise ValueError("no")

    told = []
    with pytest.raises(ValueError, match="no"):
        load()
    assert told[0].text == "why\n"


def test_a_process_that_writes_on_is_not_waited_for(tmp_path):
    script = (
        "import pathlib, sys, time; print('begun', flush=True); pathlib.Path(sys.argv[1]).touch();"
        " time.sleep(3); print('ended', flush=True)"
    )
    has_begun = tmp_path / "begun"
    with overhearing() as overheard:
        child = subprocess.Popen([sys.executable, "-c", script, str(has_begun)], stdout=1, stderr=2)
        wait_for(has_begun.exists)
    assert overheard.text == "begun\n"
    [waiting] = [thread for thread in threading.enumerate() if thread.name == "overhearing"]
    child.wait()
    waiting.join(20)
    assert not waiting.is_alive()
    assert "ended" not in overheard.text


def test_what_a_load_wrote_that_crashed_is_not_lost():
    script = (
        "import os\nfrom runner.engines.tensorrt_llm.overhearing import overhearing\n"
        "with overhearing():\n    os.write(1, b'the last words')\n    os.abort()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=PROJECT_ROOT, capture_output=True, check=False, timeout=20
    )
    assert ended.returncode < 0
    assert (ended.stdout, ended.stderr) == (b"", b"the last words")
