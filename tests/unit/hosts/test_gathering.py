"""On which hosts an engine is spread, and which hosts may join."""

from __future__ import annotations

import os
from typing import Any, cast

import pytest

from runner.engines.hosts.gathering import Gathering, Host, spread
from runner.engines.hosts.link import connect
from runner.engines.hosts.settings import HostsSettings, difference, identity
from shared.cog.server import free_port
from shared.errors import EngineStartFailed, HostLost, HostsMissing

SECRET = b"a secret of at least 16 bytes"
SAME = {"engine": "tensorrt_llm"}


def hosts(*gpus: int) -> list[Host]:
    return [Host(f"10.0.0.{number}", count, cast("Any", None)) for number, count in enumerate(gpus, 2)]


@pytest.mark.parametrize(
    ("needed", "own", "joined", "expected"),
    [
        (2, 1, [], None),
        (2, 1, [1], (1, [2])),
        (16, 8, [8, 8], (8, [2])),  # the second waits
        (16, 8, [4, 8], (8, [3])),  # the first has too few
        (8, 4, [8, 8], (4, [2])),
        (4, 1, [4], None),  # as many on each
        (4, 1, [4, 1, 1], (1, [2, 3, 4])),
        (6, 2, [2], None),
        (6, 2, [2, 2], (2, [2, 3])),
        (1, 1, [1], (1, [])),
    ],
)
def test_as_few_hosts_as_can_be_with_as_many_processes_on_each(needed, own, joined, expected):
    found = spread(needed, own, hosts(*joined))
    if found is None:
        assert expected is None
        return
    numbers = [int(host.address.rpartition(".")[2]) for host in found.hosts]
    assert (found.per_host, numbers) == expected


@pytest.fixture
def gathering():
    settings = HostsSettings(f"127.0.0.1:{free_port()}", gpus=1, seconds=5, secret=SECRET)
    return Gathering(settings, SAME), settings.address


def join(address: str, **told: object):
    link = connect(address, SECRET)
    link.send({"host": "other", "gpus": 1, "identity": SAME} | told)
    return link


def test_a_host_that_joins_serves_a_part_and_is_told_what(gathering):
    made, address = gathering
    link = join(address)
    found = made.spread(2)
    found.hosts[0].run(["orted", "-x"])
    assert link.receive() == {"run": ["orted", "-x"]}
    link.send({"failed": "E2407 EngineStartFailed: no"})
    assert str(made.failures.get(timeout=5)).startswith("E2407 ")
    link.send({"failed": "no program"})
    assert isinstance(failed := made.failures.get(timeout=5), EngineStartFailed)
    assert "127.0.0.1 could not do its part: no program" in str(failed)
    link.close()
    assert isinstance(made.failures.get(timeout=5), HostLost)


def test_a_host_that_left_is_not_asked(gathering):
    made, address = gathering
    link = join(address)
    (host,) = made.spread(2).hosts
    link.close()
    made.failures.get(timeout=5)
    with pytest.raises(HostLost, match=r"The host 127\.0\.0\.1, which serves"):
        host.run(["orted"])


def test_a_host_with_something_else_is_refused(gathering):
    _, address = gathering
    link = join(address, identity={"engine": "vllm"})
    # It says so itself: "here" is where it is read.
    assert link.receive() == {"refused": "engine is tensorrt_llm there and vllm here"}
    link.close()


def test_it_waits_no_longer_than_it_may():
    settings = HostsSettings(f"127.0.0.1:{free_port()}", gpus=2, seconds=0.1, secret=SECRET)
    with pytest.raises(
        HostsMissing, match=r"after 0\.1 s, GPUs needed: 4; GPUs of this host: 2, of the others: "
    ):
        Gathering(settings, SAME).spread(4)


def test_the_same_engine_is_the_same_files(tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for directory in (ours, theirs):
        directory.mkdir()
        (directory / "config.json").write_text("{}")
    assert difference(identity("vllm", ours), identity("vllm", theirs)) is None
    (theirs / "config.json").write_text("{ }")
    assert "the digest of the engine's files is " in (
        difference(identity("vllm", ours), identity("vllm", theirs)) or ""
    )


def test_the_secret_is_in_the_environment_until_it_is_read():
    settings = HostsSettings("10.0.0.1:5700", gpus=8, seconds=60, secret=SECRET)
    assert SECRET.decode() not in repr(settings)
    environment = {"PATH": os.environ["PATH"]} | settings.environment()
    assert HostsSettings.from_environment(environment) == settings
    assert environment.keys() == {"PATH"}
    assert HostsSettings.from_environment(environment) is None
