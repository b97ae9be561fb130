"""How Cog's own server is started."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from runner.cog.server import CogServer
from runner.settings import COG_SLOTS
from shared.cog.server import free_port, listen, port_number, refuse_used_port
from shared.errors import SettingInvalid
from tools.docs.environment import page


def test_its_places_are_those_that_the_docs_tell(monkeypatch):
    monkeypatch.delenv("COG_MAX_CONCURRENCY", raising=False)
    command = CogServer("127.0.0.1", 5000).command("control", 0)
    assert command.environment["COG_MAX_CONCURRENCY"] == str(COG_SLOTS)
    assert f"not set: {COG_SLOTS} with SERVER=cog" in page()


def test_its_places_can_be_set(monkeypatch):
    monkeypatch.setenv("COG_MAX_CONCURRENCY", "7")
    assert CogServer("127.0.0.1", 5000).command("control", 0).environment["COG_MAX_CONCURRENCY"] == "7"


@pytest.mark.parametrize("host", ["no-such-host.invalid", "192.0.2.1", "a" * 64, "a..b"])
def test_a_host_that_is_not_here_is_not_blamed_on_the_port(host):
    with pytest.raises(SettingInvalid, match=f"The setting --host is '{host}', but nothing can listen there"):
        listen(host, free_port())


@pytest.mark.parametrize(
    ("host", "told"), [("192.0.2.1", r"192\.0\.2\.1:8000"), ("2001:db8::1", r"\[2001:db8::1\]:8000")]
)
def test_the_setting_that_has_the_host_is_blamed(host, told):
    with pytest.raises(SettingInvalid, match=f"The setting TRITON_HTTP_ADDRESS is '{told}', but nothing"):
        refuse_used_port(8000, host, "TRITON_HTTP_ADDRESS")


@pytest.mark.parametrize("text", ["", "x", "-1", "0", "65536", "\u00b2", "9" * 5000])
def test_what_is_no_port_is_named(text):
    with pytest.raises(SettingInvalid, match="a port must be a number from 1 to 65535"):
        port_number(text)


def test_a_free_port_is_none_that_a_connection_gets_by_chance(monkeypatch, tmp_path):
    """The kernel gives those in a range; another program's connection would have it before we listen."""
    given = tmp_path / "range"
    monkeypatch.setattr("shared.cog.server._GIVEN_BY_CHANCE", given)
    given.write_text("40000\t60999\n")
    assert all(10_000 <= free_port() < 40_000 for _ in range(50))
    given.write_text("1024\t60999\n")
    assert free_port() >= 1024
    given.unlink()
    assert free_port() >= 1024


def test_a_free_port_is_nobody_elses_until_a_server_listens_on_it():
    """Two programs that look for ports at the same time, such as runners on one machine, got the same one."""
    port = free_port()
    with socket.socket() as another, pytest.raises(OSError, match="in use"):
        another.bind(("127.0.0.1", port))
    with listen("127.0.0.1", port) as listener:
        assert listener.getsockname()[1] == port


def test_many_free_ports_cost_few_descriptors():
    program = (
        "import os\n"
        "from shared.cog.server import free_port\n"
        "ports = [free_port() for _ in range(500)]\n"
        "print(len(os.listdir('/proc/self/fd')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100
