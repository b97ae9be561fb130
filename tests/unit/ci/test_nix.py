"""ci/nix where the path of the checkout is no URL: Nix gets a copy, which lasts as long as it needs it."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from shared.layout import PROJECT_ROOT
from tests.support.waiting import wait_for

NIX = """#!/bin/bash
printf '%s\\n' "$@" >"$TOLD"
cat >>"$TOLD"
if [ -n "${RUNS:-}" ]; then
    trap 'echo ended >>"$TOLD"; exit 3' TERM
    echo running >>"$TOLD"
    sleep 60 & wait
fi
exit 2
"""


@pytest.fixture
def start(tmp_path, monkeypatch):
    """`start(*arguments, **environment)`: ci/nix of a checkout in "a checkout", with a Nix that records its
    arguments.
    """
    checkout = tmp_path / "a checkout"
    (checkout / "ci").mkdir(parents=True)
    (checkout / "nix/host-toolchain").mkdir(parents=True)
    (checkout / "nix/host-toolchain/flake.nix").write_text("")
    shutil.copy(PROJECT_ROOT / "ci/nix", checkout / "ci/nix")
    for words in (["init", "--quiet"], ["add", "."]):
        subprocess.run(["git", *words], cwd=checkout, check=True)
    program = tmp_path / "bin/nix"
    program.parent.mkdir()
    program.write_text(NIX)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

    def start(*arguments, **environment):
        return subprocess.Popen(
            [checkout / "ci/nix", *arguments],
            env={**os.environ, "TOLD": str(tmp_path / "told"), "TOOLCHAIN": "host", **environment},
            stdin=subprocess.PIPE,
        )

    return start


@pytest.fixture
def told(tmp_path):
    """`told()`: the lines that Nix has recorded."""
    file = tmp_path / "told"
    return lambda: file.read_text().splitlines() if file.exists() else []


def copy_in(words):
    (place,) = [word for word in words if word.startswith("path:") and word.endswith("#image")]
    return Path(place.removeprefix("path:").removesuffix("#image"))


def test_nix_gets_a_copy_its_input_and_its_status_counts(start, told):
    process = start("build", ".#image", "--out-link", "a result")
    process.communicate(b"what is typed\n")
    assert process.returncode == 2
    words = told()
    copy = copy_in(words)
    assert words[:2] == ["build", "--extra-experimental-features"]
    assert words[words.index("nixpkgs") + 1] == f"path:{copy}/nix/host-toolchain"
    assert words[-2:] == ["a result", "what is typed"]
    assert not copy.exists()


def test_a_signal_ends_nix_and_the_copy(start, told):
    process = start("build", ".#image", RUNS="1")
    process.stdin.close()
    wait_for(lambda: "running" in told())
    copy = copy_in(told())
    assert (copy / "ci/nix").is_file()
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 3
    assert told()[-1] == "ended"
    assert not copy.exists()
