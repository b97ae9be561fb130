"""How fast an engine of 4 GB gets from a server into a directory, beside what curl and tar need.

Both sides run against the same server. The fastest run of each counts, since other programs can only slow them down;
where the server limits each connection, curl and tar run once.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from shared.artifact import PackedFile, write_archive
from tests.performance.row import Row
from tests.unit.artifact.archives import CONFIG, FACTS

SIZE = 4_000_000_000
FILES = 4
OBJECT_STORE = 50_000_000  # bytes per second and connection
ROUNDS = 3

# Prints how long it took (s), and the most memory that its process had (bytes).
_FETCH = """
import json, resource, sys, time
from pathlib import Path
from runner.weights import fetch_weights
began = time.monotonic()
fetch_weights(sys.argv[1], Path(sys.argv[2]), check=lambda _: None, max_bytes=1 << 40)
seconds = time.monotonic() - began
print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024]))
"""


def make_archive(directory: Path) -> Path:
    """An engine of files that no file system can compress."""
    source, archive = directory / "rank.engine", directory / "engine.tar"
    with source.open("wb") as file:
        for _ in range(100):
            file.write(os.urandom(SIZE // FILES // 100))
    files = [PackedFile(f"engine/rank{rank}.engine", source) for rank in range(FILES)]
    write_archive(archive, FACTS, [PackedFile("config.json", CONFIG), *files])
    source.unlink()
    return archive


@contextmanager
def serving(archive: Path, rate: float | None):
    """The URL of a server in a process of its own, with that many bytes per second and connection."""
    command = [sys.executable, "-m", "tests.support.files", str(archive), *([str(rate)] if rate else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def fetched(url: str, directory: Path) -> tuple[float, int]:
    """Seconds and bytes of memory that the runner needs."""
    cache = directory / "cache"
    done = subprocess.run(
        [sys.executable, "-c", _FETCH, url, str(cache)], stdout=subprocess.PIPE, check=True, text=True
    )
    shutil.rmtree(cache)
    seconds, memory = json.loads(done.stdout)
    return seconds, memory


def piped(url: str, directory: Path, *, hashed: bool) -> float:
    """Seconds that `curl | tar x` needs, or `curl | tee >(sha256sum) | tar x`."""
    target = directory / "piped"
    target.mkdir()
    began = time.monotonic()
    pipe = subprocess.PIPE
    curl = subprocess.Popen(["curl", "--silent", "--fail", url], stdout=pipe)
    processes = [curl]
    stream = curl.stdout
    if hashed:
        digest = subprocess.Popen(["sha256sum"], stdin=pipe, stdout=subprocess.DEVNULL)
        into = digest.stdin.fileno()
        tee = subprocess.Popen(["tee", f"/dev/fd/{into}"], stdin=stream, stdout=pipe, pass_fds=[into])
        digest.stdin.close()
        stream.close()
        processes += [digest, tee]
        stream = tee.stdout
    tar = subprocess.Popen(["tar", "-x", "-C", str(target)], stdin=stream)
    stream.close()
    for process in [*processes, tar]:
        if process.wait():
            raise AssertionError(f"{process.args!r} ended with {process.returncode}")
    seconds = time.monotonic() - began
    shutil.rmtree(target)
    return seconds


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        archive = make_archive(directory)
        with serving(archive, OBJECT_STORE) as url:
            slow = [fetched(url, directory) for _ in range(ROUNDS)]
            slow_piped = piped(url, directory, hashed=False)
        with serving(archive, None) as url:
            fast, fast_piped = [], []
            for _ in range(ROUNDS):
                fast.append(fetched(url, directory))
                fast_piped.append(piped(url, directory, hashed=True))
    name = "weights of 4 GB"
    return [
        Row(
            f"{name}, 50 MB/s a connection: time of curl | tar / time to fetch",
            slow_piped / min(slow)[0],
            at_least=8,
        ),
        Row(
            f"{name}: time of curl | tee >(sha256sum) | tar / time to fetch",
            min(fast_piped) / min(fast)[0],
            at_least=0.8,
        ),
        Row(f"{name}: fetch, check and unpack", SIZE / 1e9 / min(fast)[0], "GB/s"),
        Row(f"{name}: peak memory", max(memory for _, memory in slow + fast) / 1e6, "MB", at_most=300),
    ]
