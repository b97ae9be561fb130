"""Which HTTP server the settings ask for."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from runner.lifecycle.heartbeat import Heartbeat


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"SERVER": "nginx"}, "E4002 SettingInvalid: The setting SERVER is 'nginx', but it must be front or cog."),
        ({"SERVER": "cog", "TLS_CERTIFICATE": "/c.pem"}, "E4002 SettingInvalid: The setting TLS_CERTIFICATE is '/c.pem', "),
        (
            {"SERVER": "cog", "API_KEYS": "alice s3cret", "COG_API_NEEDS_KEY": "true"},
            "E4002 SettingInvalid: The setting COG_API_NEEDS_KEY is 'true', but with SERVER=cog, ",
        ),
        ({"SERVER": "cog", "TLS_KEY": "/k.pem"}, "E4002 SettingInvalid: The setting TLS_KEY is '/k.pem', "),
    ],
)  # fmt: skip
def test_what_cannot_be_served_ends_the_start(settings, told):
    command = [sys.executable, "-m", "runner.lifecycle", "--port", "1"]
    done = subprocess.run(
        command, check=False, env=os.environ | settings, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr[: len(told)]) == (1, told)


def test_an_address_that_is_none_leads_to_the_option():
    """The remedy led to a page about settings, which has no word of it."""
    command = [sys.executable, "-m", "runner.lifecycle", "--host", "300.1.1.1", "--port", "1"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith(
        "E4002 SettingInvalid: The setting --host is '300.1.1.1', but nothing can listen"
    )
    assert done.stderr.endswith(" See docs/environment.md, or for an option `--help`.\n")


def test_a_front_whose_supervisor_has_ended_ends_without_a_word(tmp_path):
    """It printed a traceback behind the supervisor's reason, if that came soon enough."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = [sys.executable, "-m", "runner.front", "--control", str(tmp_path / "none")]
        fds = [listener.fileno(), Heartbeat.create()]
        command += ["--listen-fd", str(fds[0]), "--heartbeat-fd", str(fds[1])]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, pass_fds=fds)
        os.close(fds[1])
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
