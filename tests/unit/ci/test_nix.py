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
echo "locks: ${COG_TRITON_LOCKS:-}" >>"$TOLD.locks"
if [ -n "${RUNS:-}" ]; then
    trap 'echo ended >>"$TOLD"; exit 3' TERM
    echo running >>"$TOLD"
    sleep 60 & wait
fi
exit 2
"""


@pytest.fixture
def start(tmp_path, monkeypatch):
    """`start(*arguments, **environment)`: ci/nix of a checkout in "a checkout", given outside it, with a Nix that
    records its arguments.
    """
    checkout = tmp_path / "a checkout"
    (checkout / "ci").mkdir(parents=True)
    (checkout / "nix/host-toolchain").mkdir(parents=True)
    (checkout / "nix/host-toolchain/flake.nix").write_text("")
    for name in ("nix", "build-image", "check-image", "push-image"):
        shutil.copy(PROJECT_ROOT / "ci" / name, checkout / "ci" / name)
    (checkout / "ci/install-image-tools").symlink_to("/bin/true")
    for words in (["init", "--quiet"], ["add", "."]):
        subprocess.run(["git", *words], cwd=checkout, check=True)
    program = tmp_path / "bin/nix"
    program.parent.mkdir()
    program.write_text(NIX)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

    def start(*arguments, program="nix", **environment):
        return subprocess.Popen(
            [checkout / "ci" / program, *arguments],
            cwd=tmp_path,
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


@pytest.mark.parametrize(
    ("program", "words", "last"),
    [
        ("nix", ["build", ".#image", "--no-link"], "--no-link"),
        ("build-image", ["image"], "{here}/result"),
        ("check-image", ["image"], "{here}/a checkout/result"),
        ("push-image", ["image", "registry/image:1"], "{here}/a checkout/result"),
    ],
)
def test_paths_are_from_where_the_command_is_given(start, told, tmp_path, program, words, last):
    for name in ("locks", "toolchain"):
        (tmp_path / name).mkdir()
    process = start(*words, program=program, COG_TRITON_LOCKS="locks", TOOLCHAIN="toolchain")
    process.communicate()
    assert (tmp_path / "told.locks").read_text() == f"locks: {tmp_path}/locks\n"
    given = told()
    assert given[given.index("nixpkgs") + 1] == f"path:{tmp_path}/toolchain"
    assert given[-1] == last.format(here=tmp_path)


@pytest.mark.parametrize("name", ["COG_TRITON_LOCKS", "TOOLCHAIN"])
def test_a_path_that_is_no_directory_is_refused(start, told, capfd, name):
    process = start("build", ".#image", **{name: "none"})
    process.communicate()
    assert capfd.readouterr().err == f"{name} is not a directory: none\n"
    assert (process.returncode, told()) == (1, [])
