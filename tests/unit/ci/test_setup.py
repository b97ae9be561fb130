"""`make` makes its environments once, however many of it run; and says what it lacks."""

from __future__ import annotations

import subprocess
import sys

import pytest

from shared.layout import PROJECT_ROOT

LOADED = """
import importlib.util, subprocess, sys, time
from pathlib import Path

spec = importlib.util.spec_from_file_location("setup", "ci/setup.py")
setup = sys.modules["setup"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(setup)
home = setup.HOME
sys.argv = ["setup"]
"""
SET_UP = f"""{LOADED}
def make(part):
    part.place.mkdir()
    time.sleep(1)

(home / "lock.txt").touch()
setup.parts = lambda dev: [setup.Part("it", home / "it", home / "lock.txt", make)]
sys.exit(setup.main())
"""
WITHOUT_PIP = f"""{LOADED}
def create(*_, **options):
    raise subprocess.CalledProcessError(1, ["python", "-m", "ensurepip"])

setup.venv.create = create
(home / "lock.txt").touch()
setup.parts = lambda dev: [setup.Part("it", home / "it", home / "lock.txt", setup.environment)]
sys.exit(setup.main())
"""
LINKED = f"""{LOADED}
(home / "lock.txt").touch()
(home / "it").symlink_to(home / "theirs")
setup.parts = lambda dev: [setup.Part("it", home / "it", home / "lock.txt", setup.environment)]
sys.exit(setup.main())
"""
INTERRUPTED = f"""{LOADED}
def interrupted(_):
    raise KeyboardInterrupt

setup.set_up = interrupted
sys.exit(setup.main())
"""
OF_VERSION = f"""{LOADED}
setup.set_up = lambda _: 0
sys.version_info = (3, VERSION, 0)
sys.exit(setup.main())
"""


def set_up(script, home):
    return subprocess.run(
        [sys.executable, "-c", script],
        cwd=PROJECT_ROOT,
        env={"COG_TRITON_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_python_without_what_installs_pip_is_told_with_the_package_that_has_it(tmp_path):
    failed = set_up(WITHOUT_PIP, tmp_path)
    told = "This Python cannot make a virtual environment (on Debian: apt-get install python3-venv), or"
    told += f" the disk of {tmp_path / 'it'} is full"
    assert (failed.returncode, failed.stderr) == (1, f"Setting up (once):\nSet-up failed:\n{told}\n")


def test_a_place_that_cannot_be_written_is_told(tmp_path):
    """It was a traceback: root had made `.build` for a test that needs root."""
    (tmp_path / "file").touch()
    refused = set_up(SET_UP.partition("(home")[0] + "sys.exit(setup.main())", tmp_path / "file/home")
    assert refused.returncode == 1
    assert refused.stderr.startswith(
        f"{tmp_path}/file/home cannot be written: Not a directory. Did another user "
    )


def test_what_a_link_leads_to_is_not_overwritten(tmp_path):
    file = tmp_path / "theirs/file"
    file.parent.mkdir()
    file.touch()
    refused = set_up(LINKED, tmp_path)
    told = f"{tmp_path}/it is a link: remove it, so that what it leads to is not overwritten"
    assert (refused.returncode, refused.stderr) == (1, f"Setting up (once):\nSet-up failed:\n{told}\n")
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (["--help"], 0, "--vllm  "),
        (["--version"], 2, "unrecognized arguments: --version"),
        (["dev"], 2, "unrecognized arguments: dev"),
        (["--vll"], 2, "unrecognized arguments: --vll"),
        (["--dev", "--vllm"], 2, "argument --vllm: not allowed with argument --dev"),
    ],
)
def test_help_and_what_is_no_option_make_nothing(words, status, told, tmp_path):
    ended = set_up(SET_UP.replace('argv = ["setup"]', f"argv = {['setup', *words]}"), tmp_path)
    assert (ended.returncode, told in ended.stdout + ended.stderr) == (status, True), ended
    assert not (tmp_path / "it").exists()


def test_ctrl_c_ends_it_quietly(tmp_path):
    ended = set_up(INTERRUPTED, tmp_path)
    assert (ended.returncode, ended.stderr) == (130, "")


@pytest.mark.parametrize("minor", [10, 14])
def test_a_python_that_the_locks_are_not_for_is_refused(minor, tmp_path):
    refused = set_up(OF_VERSION.replace("VERSION", str(minor)), tmp_path)
    # Not `make setup PYTHON=...`: `make demo` would take the refused one again.
    told = "cog-triton needs a Python from 3.11 to 3.13; name one by `export PYTHON=python3.12`\n"
    assert (refused.returncode, refused.stderr) == (1, told)


def test_two_at_once_make_everything_once(tmp_path):
    started = [
        subprocess.Popen(
            [sys.executable, "-c", SET_UP],
            cwd=PROJECT_ROOT,
            env={"COG_TRITON_HOME": str(tmp_path)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    told = [process.communicate(timeout=60)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], told
    assert sorted(map(bool, told)) == [False, True]  # one made it, the other had nothing to do
