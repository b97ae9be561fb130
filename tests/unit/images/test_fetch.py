"""How the host's toolchain fetches a file, which Nix compares with its hash once more."""

import hashlib
import subprocess
import sys

import pytest

from tests.support.files import FileServer
from tests.support.images import ROOT

CONTENT = b"what the lock says"


@pytest.fixture
def mirrors(tmp_path):
    """The addresses of a mirror that holds something else, and of one that holds the file."""
    for name, content in (("other", b"something else"), ("true", CONTENT)):
        (tmp_path / name).write_bytes(content)
    with FileServer(tmp_path / "other") as other, FileServer(tmp_path / "true") as true:
        yield other.url, true.url


def fetch(output, *urls):
    program = ROOT / "nix/host-toolchain/fetch.py"
    command = [sys.executable, program, output, hashlib.sha256(CONTENT).hexdigest(), *urls]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_mirror_with_other_bytes_is_passed_over(mirrors, tmp_path):
    assert fetch(tmp_path / "output", *mirrors).returncode == 0
    assert (tmp_path / "output").read_bytes() == CONTENT


def test_when_all_differ_each_is_named_and_nothing_is_left(mirrors, tmp_path):
    refused = fetch(tmp_path / "output", mirrors[0])
    assert refused.returncode == 1
    assert f"{mirrors[0]}: other bytes arrived" in refused.stderr
    assert not (tmp_path / "output").exists()


def test_the_password_of_a_mirror_is_not_shown(tmp_path):
    refused = fetch(tmp_path / "output", "http://someone:s3cret@127.0.0.1:9/file")
    assert refused.returncode == 1
    assert refused.stderr.startswith("http://127.0.0.1:9/file: ")
    assert "s3cret" not in refused.stderr
