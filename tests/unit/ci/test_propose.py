"""A commit becomes a branch, and a pull request where GitHub permits it."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.support.images import ROOT, run

WHO = ["-c", "user.name=test", "-c", "user.email=test@example.com"]
REFUSED = (
    "pull request create failed: GraphQL: GitHub Actions is not permitted to create or approve pull requests"
)


@pytest.mark.parametrize(
    ("gh", "status", "warned"),
    [
        ("echo https://github.com/acme/cog-triton/pull/1", 0, False),
        (f"echo '{REFUSED} (createPullRequest)' >&2; exit 1", 0, True),
        ("echo 'HTTP 502' >&2; exit 1", 1, False),
    ],
)
def test_propose(tmp_path, gh, status, warned):
    origin, clone = tmp_path / "origin", tmp_path / "clone"
    run("git", "init", "--quiet", "--bare", origin)
    run("git", "clone", "--quiet", origin, clone)
    run("git", *WHO, "commit", "--quiet", "--allow-empty", "-m", "Newer locks", cwd=clone)
    run("git", "bundle", "create", "--quiet", "locks.bundle", "HEAD", cwd=clone)
    (tmp_path / "programs").mkdir()
    program = tmp_path / "programs/gh"
    program.write_text(f"#!/bin/sh\n[ $2 = create ] || exit 0\n{gh}\n")
    program.chmod(0o755)
    done = subprocess.run(
        [ROOT / "ci/propose", "locks.bundle", "locks/newer"],
        cwd=clone,
        env={**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status
    assert ("::warning" in done.stdout) is warned
    assert run("git", "log", "-1", "--format=%s", "locks/newer", cwd=origin).stdout == "Newer locks\n"
