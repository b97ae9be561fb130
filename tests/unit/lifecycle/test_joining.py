"""A host that joins: what it runs, and what keeps it from joining."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from runner.engines.hosts.link import LinkLost, Listener
from runner.lifecycle.joining import Part
from runner.settings import Settings
from shared.artifact import EngineFacts, PackedFile, write_archive
from shared.errors import SettingInvalid
from shared.layout import PROJECT_ROOT
from tests.support.waiting import wait_for

SECRET = b"a secret of at least 16 bytes"


def part(tmp_path, kind: str = "tensorrt_llm") -> Part:
    programs = tmp_path / "programs"
    programs.mkdir(exist_ok=True)
    for name in ("orted", "other"):
        (programs / name).write_text("#!/bin/sh\nexit 3\n")
        (programs / name).chmod(0o755)
    return Part(kind, tmp_path, 2, {"PATH": str(programs)})


def test_it_runs_mpis_daemon_and_nothing_else(tmp_path):
    here = part(tmp_path)
    assert here.command(["orted", "-x"]) == [str(tmp_path / "programs/orted"), "-x"]
    for told in (["other"], ["/bin/sh", "-c", "true"], ["vllm-node", "1"]):
        with pytest.raises(LookupError, match="is unknown there"):
            here.command(told)
    with pytest.raises(LookupError, match="there is no prted there"):
        here.command(["prted"])
    with pytest.raises(LookupError, match="is unknown there"):
        part(tmp_path, "vllm").command(["orted"])


@pytest.fixture
def first():
    """A first host: `told` is what it is told, `tell` what it answers each time."""

    class First:
        def __init__(self) -> None:
            self.told: list[dict] = []
            self.tell: list[dict] = []
            self.listener = Listener(SECRET, self._serve)
            self.address = self.listener.listen("127.0.0.1:0")

        def _serve(self, link) -> None:
            with suppress(LinkLost):
                self.told.append(link.receive())
                for message in self.tell:
                    link.send(message)
                    self.told.append(link.receive())

    made = First()
    yield made
    made.listener.close()


@pytest.fixture
def place(tmp_path_factory, monkeypatch):
    """Where temporary files belong."""
    place = tmp_path_factory.mktemp("t")
    monkeypatch.setenv("TMPDIR", str(place))
    return place


@contextmanager
def joined(address: str, folder: Path):
    """A process that joins; it is killed at the end."""
    (folder / "config.json").write_text("{}")
    script = """
import sys
from pathlib import Path
from runner.lifecycle.joining import Part, join
folder, address, secret = sys.argv[1:]
join(address, Part("tensorrt_llm", Path(folder), 2, {"PATH": f"{folder}/programs:/bin"}), secret.encode())
"""
    command = [sys.executable, "-c", script, str(folder), address, SECRET.decode()]
    process = subprocess.Popen(command, cwd=PROJECT_ROOT, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_what_it_runs_and_how_that_ends_is_told(first, place, tmp_path):
    part(tmp_path)
    (broken := tmp_path / "programs/prted").write_text("#!/nowhere\n")
    broken.chmod(0o755)
    first.tell = [{"run": ["orted"]}, {"run": ["other"]}, {"run": ["prted"]}]
    with joined(first.address, tmp_path) as process:
        # The fifth: it has joined again.
        wait_for(lambda: len(first.told) >= 5 or process.poll() is not None)
        assert process.poll() is None
        hello, ended, refused, absent, _ = first.told[:5]
        assert hello["gpus"] == 2
        assert hello["identity"]["engine"] == "tensorrt_llm"
        assert ended == {"failed": "orted ended with status 3"}
        assert refused == {"failed": "'other' is unknown there"}
        assert absent == {"failed": "prted cannot be started there (No such file or directory)"}


def test_what_a_killed_one_leaves_goes_with_the_next(first, place, tmp_path):
    here = part(tmp_path)
    daemon = Path(here.environment["PATH"], "orted")
    daemon.write_text('#!/bin/sh\ntouch "$TMPDIR/of-a-daemon" "$COG_TRITON_SCRATCH/of-a-rank"\n')
    first.tell = [{"run": ["orted"]}]

    def left() -> set[str]:
        # Not rglob, which fails when a directory goes while it looks.
        return {name for _, _, names in os.walk(place) for name in names if name.startswith("of-")}

    with joined(first.address, tmp_path):
        wait_for(lambda: len(left()) == 2)
    (directory,) = place.iterdir()
    assert left() == {"of-a-daemon", "of-a-rank"}
    os.utime(directory, (0, 0))  # one that is young may be another's that starts
    first.tell = []
    with joined(first.address, tmp_path):
        wait_for(lambda: not left())


def test_one_that_is_refused_or_has_another_secret_ends(first, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    script = "import sys; from runner.lifecycle.joining import *\n"
    script += "from pathlib import Path\n"
    script += "join(sys.argv[1], Part('mock', Path(sys.argv[2]), 1, {}), sys.argv[3].encode())"
    first.tell = [{"refused": "engine is mock there and vllm here"}]
    for secret, reason in (
        (SECRET.decode(), "engine is mock there"),
        ("another secret", "the other side ended the"),
    ):
        command = [sys.executable, "-c", script, first.address, str(tmp_path), secret]
        ended = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False)
        assert f"E4016 HostNotJoined: This host cannot join {first.address}: {reason}" in ended.stderr


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "at least 16 characters"),
        ({"HOSTS_SECRET": "hush"}, "at least 16 characters"),
        ({"HOSTS_SECRET_FILE": "/nowhere/at/all"}, "but there is no such file"),
        ({"HOSTS_SECRET_FILE": "/dev/zero"}, "but it is not a file"),
    ],
)
def test_a_secret_that_is_none_is_refused(given, told):
    with pytest.raises(SettingInvalid, match=told) as raised:
        Settings.from_environment(given).secret_of_hosts()
    assert "hush" not in str(raised.value)


def test_a_short_secret_in_a_file_is_the_files_fault(tmp_path):
    (file := tmp_path / "secret").write_text("hush\n")
    settings = Settings.from_environment({"HOSTS_SECRET": "x" * 20, "HOSTS_SECRET_FILE": str(file)})
    told = rf"HOSTS_SECRET_FILE is '{file}', but the secret in it must have at least 16"
    with pytest.raises(SettingInvalid, match=told):
        settings.secret_of_hosts()


def test_the_secret_of_a_file_comes_first(tmp_path):
    file = tmp_path / "secret"
    file.write_text(f"{SECRET.decode()}\n")
    settings = Settings.from_environment({"HOSTS_SECRET": "x" * 20, "HOSTS_SECRET_FILE": str(file)})
    assert settings.secret_of_hosts() == SECRET
    assert SECRET.decode() not in repr(settings)
    assert "x" * 20 not in repr(settings)


def test_the_command_ends_with_what_is_wrong(tmp_path):
    command = [str(Path(sys.executable).parent / "cog-triton"), "join", "127.0.0.1:5700", str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOSTS_")}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 1
    assert ended.stderr.startswith("E4002 SettingInvalid: The setting HOSTS_SECRET is not set, but ")


def test_an_engine_for_cpus_has_nothing_to_join(tmp_path):
    """It needs no GPU, and none is looked for."""
    facts = EngineFacts(engine="mock", model="m", cog_triton_version="1")
    write_archive(engine := tmp_path / "engine.tar", facts, [PackedFile("config.json", b"{}")])
    command = [str(Path(sys.executable).parent / "cog-triton"), "join", "127.0.0.1:5700", str(engine)]
    environment = {
        **os.environ,
        "HOSTS_SECRET": SECRET.decode(),
        "WEIGHTS_CACHE": str(tmp_path / "cache"),
    }
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 1
    reason = "an engine of the kind mock needs no GPU, and the first host serves it alone"
    assert f"E4016 HostNotJoined: This host cannot join 127.0.0.1:5700: {reason}." in ended.stderr
