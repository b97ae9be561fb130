"""Another user of the machine gets no secret of a runner, and no way to change it (needs root)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import httpx2
import pytest

from shared.layout import PROJECT_ROOT
from tests.security.nobody import Runner
from tests.security.siege import WITH_KEYS, besieged, listening_ports, open_files, socket_inodes

ORDINARY = 54321  # no account has it
AS_ORDINARY = ["setpriv", f"--reuid={ORDINARY}", f"--regid={ORDINARY}", "--clear-groups", "--no-new-privs"]
PROMPT = "a-prompt-that-only-its-sender-knows"
SECRETS = {
    "API_KEYS": "tenant sk-tenant-5d07ce",
    "HOSTS_SECRET": "hosts-secret-0d9f3c1b77",
    "OPERATOR_KEY": "operator-key-77ab10",
    "WEBHOOK_AUTH_TOKEN": "webhook-token-3e61f0",
    "HF_TOKEN": "hf_tokenOfTheHub91c2",
}
_TRIES = "import subprocess, sys, cog; subprocess.run([sys.executable, '-c', ''], check=True)"
SHARED = ("/tmp", "/dev/shm", "/var/tmp", "/dev/mqueue")

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


@pytest.fixture
def directory():
    """One that every user can enter, as /tmp is: pytest's own are closed."""
    made = Path(tempfile.mkdtemp(prefix="walk-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def as_ordinary_user(directory):
    """How a command begins that an ordinary user runs; as root, where Python or the project is only root's."""
    command = [*AS_ORDINARY, sys.executable, "-c", _TRIES]
    if subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, check=False).returncode != 0:
        return []
    os.chown(directory, ORDINARY, ORDINARY)
    return AS_ORDINARY


def unix_sockets(pids):
    """The names of the Unix sockets of these processes."""
    inodes = socket_inodes(pids)
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return sorted({row[7] for row in rows if len(row) > 7 and row[6] in inodes})


def files(directory, pids):
    """What the runner has made, wherever it is."""
    found = {directory, *directory.rglob("*")}
    for folder in SHARED:
        # Unlike a glob, it passes over what others remove meanwhile.
        for parent, folders, names in os.walk(folder):
            for path in (Path(parent, name) for name in folders + names):
                with suppress(OSError):
                    if path.lstat().st_uid == ORDINARY:
                        found.add(path)
    found |= {Path(name) for name in open_files(pids) if name.startswith(SHARED)}
    return sorted(map(str, found))


@pytest.mark.parametrize("keys", [{}, WITH_KEYS], ids=["few settings", "keys"])
def test_nobody_gets_a_secret_or_a_way_to_change_a_runner(directory, keys):
    prefix = as_ordinary_user(directory)
    home, temporary = directory / "home", directory / "tmp"
    home.mkdir()
    temporary.mkdir()
    temporary.chmod(0o1777)
    for path in (home, temporary):
        os.chown(path, *(2 * [ORDINARY if prefix else 0]))
    secrets = SECRETS | ({"API_KEYS": f"{keys['API_KEYS']},{SECRETS['API_KEYS']}"} if keys else {})
    settings = keys | secrets | {"HOME": str(home), "TMPDIR": str(temporary)}
    settings |= {"WEIGHTS_CACHE": str(home / "weights"), "COMPILE_CACHE": str(home / "compiled")}
    with besieged(directory, prefix=prefix, **settings) as server:
        key = SECRETS["API_KEYS"].split()[1]
        for path, body in {
            "/predictions": {"input": {"prompt": PROMPT, "max_tokens": 3}},
            "/v1/completions": {"prompt": PROMPT, "max_tokens": 3},
            "/tokenize": {"messages": [{"role": "user", "content": PROMPT}]},
        }.items():
            answer = httpx2.post(server.url + path, json=body, headers={"Authorization": f"Bearer {key}"})
            assert answer.status_code == 200, answer.text
        pids = sorted(server.pids())
        tried = Runner(
            pids=pids,
            ports=sorted(listening_ports(pids)),
            public_ports=[server.port],
            sockets=unix_sockets(pids),
            paths=files(directory, pids),
            secrets=[PROMPT, key, *(value for name, value in SECRETS.items() if name != "API_KEYS")],
        )
        assert len(pids) >= 4, pids
        assert tried.sockets, "the feed's socket is not among them"
        done = subprocess.run(
            [sys.executable, "-m", "tests.security.nobody"],
            input=json.dumps(asdict(tried)),
            capture_output=True,
            text=True,
            cwd=PROJECT_ROOT,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        got = json.loads(done.stdout)
        print(f"tried {len(pids)} processes, ports {tried.ports}, {tried.sockets}, {len(tried.paths)} paths")
        assert got == [], "\n".join(got)
        log = (directory / "log").read_text()
        assert not [secret for secret in tried.secrets if secret in log], log
