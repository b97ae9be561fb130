"""What all commands have in common."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from cli.main import app
from shared import VERSION

PROGRAM = Path(sys.executable).with_name("cog-triton")
COMMANDS = get_command(app)
assert isinstance(COMMANDS, TyperGroup)
COLOUR = b"\x1b["


def run(*arguments, **environment):
    return subprocess.run(
        [PROGRAM, *map(str, arguments)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def broken(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("engine: mock\nspeed: 3\n")
    return path


def test_the_version():
    assert run("--version").stdout == f"cog-triton {VERSION}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("inspect", "none.tar", "--json"),
        ("build", "none.yaml", "-o", "engine.tar", "--json"),
        ("build", "data:,engine: mock", "-o", "none/engine.tar", "--json"),
    ],
)
def test_an_error_for_programs(tmp_path, arguments):
    done = run(*arguments)
    assert done.returncode == 1
    error = json.loads(done.stdout)["error"]
    assert error["text"].startswith(f"{error['code']} {error['name']}: ")


def test_an_error_for_people():
    done = run("inspect", "none.tar")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("E4201 WeightsNotFound: ")
    assert COLOUR not in done.stderr.encode()


def test_a_build_for_programs(tmp_path):
    done = run("build", "data:,engine: mock", "-o", tmp_path / "engine.tar", "--json")
    built = json.loads(done.stdout)
    assert built["output"] == str(tmp_path / "engine.tar")
    assert (
        json.loads(run("inspect", tmp_path / "engine.tar", "--json").stdout)["manifest"] == built["manifest"]
    )


@pytest.mark.parametrize(
    ("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True)]
)
@pytest.mark.parametrize("command", ["check", "doctor", "build"])
def test_colours_at_a_terminal(broken, command, environment, coloured):
    ours, theirs = pty.openpty()
    more = {"check": [broken], "doctor": [], "build": [broken, "-o", broken.with_name("engine.tar")]}[command]
    inherited = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    with subprocess.Popen(
        [PROGRAM, command, *more],
        env=inherited | {"TERM": "xterm"} | environment,
        stdout=theirs,
        stderr=theirs,
    ):
        os.close(theirs)
        printed = b""
        while True:
            try:
                chunk = os.read(ours, 4096)
            except OSError:  # the other side is closed
                break
            if not chunk:
                break
            printed += chunk
    os.close(ours)
    assert printed
    assert (COLOUR in printed) is coloured


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell):
    assert (
        "cog-triton"
        in run("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1").stdout
    )


def test_a_directory_is_named_as_such(tmp_path):
    assert "it is a directory" in run("check", tmp_path).stdout
    assert "it is a directory" in run("build", tmp_path, "-o", tmp_path / "x").stderr


@pytest.mark.parametrize("address", ["10.0.0.1", "10.0.0.1:", "10.0.0.1:port"])
def test_a_first_host_without_a_port_is_refused(address):
    refused = run("join", address, "mock.tar", COLUMNS="200")
    assert refused.returncode == 2
    assert "Invalid value for ADDRESS: it must be host:port, the port from 1 to 65535" in refused.stderr


def test_a_secret_beside_the_user_is_read(tmp_path, monkeypatch):
    (tmp_path / "secret").write_text("short")
    monkeypatch.chdir(tmp_path)
    done = run("join", "127.0.0.1:1", "none.tar", HOSTS_SECRET_FILE="secret")
    assert "it must have at least 16 characters" in done.stderr


@pytest.mark.parametrize("command", [("serve", "engine.tar"), ("join", "127.0.0.1:1", "engine.tar")])
@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("WEIGHTS_CACHE", "cache", "HERE/cache"),
        ("API_KEYS_FILE", "/etc/keys", "/etc/keys"),
        ("LORA_FOLDER", "", ""),
        ("HF_HOME", "hub", "HERE/hub"),
        ("SSL_CERT_FILE", "company.pem", "HERE/company.pem"),
        ("COG_TRITON_CONFIG", "config.yaml", "HERE/config.yaml"),
        ("COG_TRITON_CONFIG", "data:,", "data:,"),
        ("MPI_HOSTS", "hosts", "HERE/hosts"),
        ("MPI_HOSTS", "cluster", "cluster"),
    ],
)
def test_paths_in_settings_start_where_the_command_is_given(
    tmp_path, monkeypatch, command, name, value, told
):
    for file in ("config.yaml", "hosts", "cluster"):
        (tmp_path / file).touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(name, value)
    environments, before = [], signal.pthread_sigmask(signal.SIG_BLOCK, ())
    monkeypatch.setattr(
        os, "execve", lambda _program, _command, environment: environments.append(environment)
    )
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert CliRunner().invoke(app, command).exit_code == 0
    assert environments[0][name] == told.replace("HERE", str(tmp_path))
    # What this process starts afterwards would be deaf to Ctrl-C.
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


@pytest.mark.parametrize("command", COMMANDS.commands)
def test_every_command_says_what_it_takes_and_a_narrow_terminal_cuts_nothing_off(command):
    told = run(command, "--help", TERMINAL_WIDTH="80", COLUMNS="80")
    assert told.returncode == 0, told.stderr
    assert "Usage: " in told.stdout
    assert "…" not in told.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "one.json", "--slo", "ttft=1s", "--rate", "inf"),
        ("plan", "one.json", "--slo", "ttft=1s", "--rate", "1", "--reserve", "inf"),
        ("plan", "one.json", "--slo", "ttft=1s", "--rate", "1", "--pull", "inf"),
        ("perf", "http://127.0.0.1:1", "--rate", "inf"),
        ("perf", "http://127.0.0.1:1", "--tps", "inf"),
        ("perf", "http://127.0.0.1:1", "--duration", "inf"),
    ],
    ids=" ".join,
)
def test_no_number_is_infinite(arguments):
    told = CliRunner().invoke(app, arguments)
    assert told.exit_code == 2, told.exception
    assert "must be less than or equal to" in " ".join(told.output.split()), told.output


@pytest.mark.parametrize(
    "arguments",
    [("generate", "a" * 256, "--prompt", "x"), ("perf", "http://127.0.0.1:1", "--report", "a" * 256)],
    ids=["generate", "report"],
)
def test_a_path_that_is_too_long_is_no_bug(arguments):
    told = run(*arguments)
    assert told.returncode
    assert "E1000" not in told.stderr
