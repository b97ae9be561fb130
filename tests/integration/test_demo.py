"""`make demo`: prints the known text, and stops what it started; the same with a model of a hub."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from demo.cog_client import PredictionClient
from shared.errors import PredictionFailed
from tests.support.hub import Hub, Repository
from tests.support.processes import MARK, wait_gone

ROOT = Path(__file__).parents[2]
PROMPT = json.loads((ROOT / "demo/prompts.json").read_text())[0]


def run_demo(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    mark = os.urandom(8).hex()
    done = subprocess.run(
        [sys.executable, "-m", "demo", *arguments],
        cwd=ROOT,
        env={**os.environ, MARK: mark, **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert wait_gone(mark) == {}
    return done


def test_the_demo_prints_the_known_text_and_draws_it(tmp_path):
    done = run_demo("--picture", str(tmp_path / "demo.svg"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert PROMPT["prompt"] + PROMPT["text"] in done.stdout
    for figure in ("time to first token", "tokens per second", "start the runner"):
        assert figure in done.stdout
    picture = (tmp_path / "demo.svg").read_text()
    assert "Once&#160;upon&#160;a&#160;time" in picture
    assert "@font-face" not in picture


@pytest.mark.parametrize("others", [{}, {"NO_PROXY": "example.com"}])
def test_a_proxy_is_not_asked_for_this_machine(others):
    done = run_demo(HTTP_PROXY="http://127.0.0.1:9", **others)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_prompt_is_no_markup():
    done = run_demo("--prompt", "a [/bold] mark")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a [/bold] mark" in done.stdout


def test_what_is_wrong_with_the_options_is_no_traceback(tmp_path):
    place = tmp_path / "none/demo.svg"
    done = run_demo("--picture", str(place))
    assert done.returncode == 1
    assert done.stdout == ""  # it was told before anything was built
    refused = f"E3302 OutputRefused: The output cannot be written to {place}: No such file or directory."
    assert done.stderr == f"{refused} Choose another file.\n"


def test_the_log_that_an_error_refers_to_is_shown():
    done = run_demo(MAX_PREDICTIONS="x")
    assert done.returncode == 1
    *log, error = done.stderr.splitlines()
    assert error.startswith("E4004 ServerNotReady: ")
    assert log[0] == "The last lines of the server's log:"
    assert "E4002 SettingInvalid: The setting MAX_PREDICTIONS is 'x'" in done.stderr


def test_a_prompt_that_is_not_text_is_refused_at_once():
    done = run_demo("--prompt", "caf\udce9")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--prompt: invalid utf8 value" in done.stderr


def test_a_server_that_ends_is_no_traceback():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up():
            for _ in range(2):
                server.accept()[0].close()

        thread = threading.Thread(target=hang_up, daemon=True)
        thread.start()
        client = PredictionClient(f"http://127.0.0.1:{server.getsockname()[1]}")
        for ask in (client.predict, lambda inputs: list(client.events(inputs))):
            with pytest.raises(PredictionFailed, match="the server ended, or the connection broke"):
                ask({})
        thread.join()


def test_ctrl_c_ends_the_demo_quietly():
    mark = os.urandom(8).hex()
    process = subprocess.Popen(
        [sys.executable, "-m", "demo"],
        cwd=ROOT,
        env={**os.environ, MARK: mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    while process.stdout.readline() != "build the engine ...\n":
        pass
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (128 + signal.SIGINT, "")
    assert wait_gone(mark) == {}


@pytest.fixture
def hub():
    with Hub() as hub:
        yield hub


def test_the_demo_takes_a_model_of_a_hub(hub, tmp_path):
    hub.repositories["someone/small-llama"] = Repository(ROOT / "demo/model")
    environment = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path), "HF_HUB_DISABLE_XET": "1"}
    done = run_demo("--model", "someone/small-llama", **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert PROMPT["prompt"] + PROMPT["text"] in done.stdout


def test_a_model_that_is_not_there_is_a_coded_error(hub, tmp_path):
    done = run_demo("--model", "someone/nothing", HF_ENDPOINT=hub.url, HF_HOME=str(tmp_path))
    assert done.returncode == 1
    assert "E3100 ModelNotFound" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_demo_takes_a_folder_by_its_path_from_here(hub):
    done = run_demo("--model", "demo/model", HF_ENDPOINT=hub.url)
    assert done.returncode == 0, done.stdout + done.stderr
    assert PROMPT["prompt"] + PROMPT["text"] in done.stdout
    assert hub.requests == []


def test_a_folder_that_is_not_there_is_a_coded_error():
    done = run_demo("--model", "./nothing")
    assert done.returncode == 1
    assert "E3107 ModelFolderUnusable" in done.stderr
