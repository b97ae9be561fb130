"""What another user of the machine gets of a runner: `python -m tests.security.nobody`, with what to try as JSON.

It starts as root, becomes nobody, tries each thing, and prints what it got, as a list in JSON.
"""

from __future__ import annotations

import asyncio  # noqa: F401 - nobody may be unable to read the standard library
import json
import os
import socket
import stat
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.security.attack import NOBODY

_MOST_READ = 1 << 22
_SECONDS = 1.0
_HELLOS = (
    b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /v2/models/ensemble HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
    b"\1\0\0\0\0\0\0\0",
)
_OF_PROCESS = (
    "cmdline",
    "environ",
    "maps",
    "smaps",
    "status",
    "stat",
    "mem",
    "io",
    "stack",
    "auxv",
    "syscall",
    "wchan",
    "limits",
    "mountinfo",
    "comm",
    "pagemap",
)
_FOR_EVERYBODY = ("cmdline", "status", "stat", "limits", "mountinfo", "comm", "wchan", "net")
_OPTIONS = (b"restricted",)  # of a command line: they would hold a key


@dataclass(frozen=True)
class Runner:
    """What root knows of a runner, to try."""

    pids: list[int]
    ports: list[int]
    public_ports: list[int]
    sockets: list[str]
    """Paths of Unix sockets; abstract ones begin with @."""
    paths: list[str]
    secrets: list[str]


class Walk:
    """Tries everything, and collects in `found` what nobody should have got."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.found: list[str] = []
        self._secrets = [secret.encode() for secret in runner.secrets]

    def run(self) -> list[str]:
        for pid in self.runner.pids:
            self._process(pid)
        for port in self.runner.ports:
            self._port(port)
        for name in self.runner.sockets:
            self._socket(name)
        for path in self.runner.paths:
            self._path(Path(path))
        self._memory_and_queues()
        return self.found

    def _search(self, where: str, content: bytes) -> None:
        self.found += [
            f"{where} holds secret number {number}"
            for number, secret in enumerate(self._secrets)
            if secret in content
        ]

    def _process(self, pid: int) -> None:
        for name in _OF_PROCESS:
            path = Path(f"/proc/{pid}/{name}")
            content = _start_of(path)
            if content is None:
                continue
            self._search(str(path), content)
            if content and name not in _FOR_EVERYBODY:
                self.found.append(f"{path} can be read")
            if name == "cmdline":
                self.found += [f"{path} has {option!r}" for option in _OPTIONS if option in content]
        for name in ("fd", "map_files", "root", "cwd", "exe", "ns/mnt"):
            path = Path(f"/proc/{pid}/{name}")
            with suppress(OSError):
                self.found.append(f"{path}: {path.readlink()}")
            if name in ("fd", "map_files"):
                with suppress(OSError):
                    self.found.append(f"{path} lists {os.listdir(path)}")  # noqa: PTH208 - no pathlib as nobody
        for name in ("oom_score_adj", "coredump_filter", "comm", "mem", "clear_refs"):
            with suppress(OSError), Path(f"/proc/{pid}/{name}").open("wb", buffering=0):
                self.found.append(f"/proc/{pid}/{name} can be opened for writing")
        with suppress(OSError):
            os.kill(pid, 0)
            self.found.append(f"process {pid} takes signals")

    def _port(self, port: int) -> None:
        for hello in _HELLOS:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), _SECONDS) as one:
                one.settimeout(_SECONDS)
                answer = _said(one, hello)
                self._search(f"port {port}", answer)
                if port not in self.runner.public_ports:
                    self.found.append(f"port {port} can be connected to, and says {answer[:60]!r}")

    def _socket(self, name: str) -> None:
        address = name.replace("@", "\0", 1) if name.startswith("@") else name
        for hello in _HELLOS:
            for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM):
                with suppress(OSError), socket.socket(socket.AF_UNIX, kind) as one:
                    one.settimeout(_SECONDS)
                    one.connect(address)
                    answer = _said(one, hello)
                    self._search(name, answer)
                    # Anybody can connect to an abstract name: what counts is whether it is answered.
                    if answer or not name.startswith("@"):
                        self.found.append(f"socket {name} can be connected to, and says {answer[:60]!r}")

    def _path(self, path: Path) -> None:
        try:
            kind = os.lstat(path).st_mode
        except OSError:
            return
        if stat.S_ISREG(kind):
            content = _start_of(path)
            if content is not None:
                self._search(str(path), content)
            with suppress(OSError):
                os.close(os.open(path, os.O_WRONLY))
                self.found.append(f"{path} can be written to")
        elif stat.S_ISDIR(kind):
            trial = path / "nobody-was-here"
            if kind & stat.S_ISVTX:  # as /tmp: everybody's, but nobody can remove others' files
                return
            with suppress(OSError):
                trial.touch()
                trial.unlink()
                self.found.append(f"{path} can be written to")
        elif stat.S_ISFIFO(kind):
            for flags in (os.O_RDONLY, os.O_WRONLY):
                with suppress(OSError):
                    os.close(os.open(path, flags | os.O_NONBLOCK))
                    self.found.append(f"{path} can be opened")

    def _memory_and_queues(self) -> None:
        for folder in ("/dev/shm", "/dev/mqueue"):
            with suppress(OSError):
                for name in os.listdir(folder):  # noqa: PTH208 - names alone, of folders that may be closed
                    content = _start_of(Path(folder, name))
                    if content is not None:
                        self._search(f"{folder}/{name}", content)
        for kind in ("shm", "msg", "sem"):
            with suppress(OSError):
                lines = Path(f"/proc/sysvipc/{kind}").read_text().splitlines()
                heading, rows = lines[0].split(), [line.split() for line in lines[1:]]
                makers = [name for name in ("cpid", "lspid") if name in heading]
                for row in rows:
                    fields = dict(zip(heading, row, strict=False))
                    if any(int(fields[name]) in self.runner.pids for name in makers):
                        self.found.append(f"System V {kind} {fields}")


def _start_of(path: Path) -> bytes | None:
    try:
        with path.open("rb", buffering=0) as file:
            return file.read(_MOST_READ) or b""
    except OSError:
        return None


def _said(one: socket.socket, hello: bytes) -> bytes:
    answer = bytearray()
    with suppress(OSError):
        one.sendall(hello)
        while len(answer) < _MOST_READ and (piece := one.recv(1 << 16)):
            answer += piece
    return bytes(answer)


def main() -> None:
    """Walk as nobody."""
    walk = Walk(Runner(**json.load(sys.stdin)))
    b"".decode("latin-1"), "".encode("idna")  # codecs are loaded when first used
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    print(json.dumps(walk.run()))


if __name__ == "__main__":
    main()
