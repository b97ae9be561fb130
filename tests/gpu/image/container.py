"""A container without a container engine: its program, run in namespaces of its own.

    unshare --mount --pid --fork python -m tests.gpu.image.container < DESCRIPTION

What it gets is what NVIDIA's container runtime gives: the image with a read-only root, /proc, /sys, /dev with
the GPUs alone, /dev/shm, a /tmp, the folders that are mounted, the image's user, no capabilities. Only the
network is the machine's.
"""

from __future__ import annotations

import ctypes
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_SHARED_MEMORY = "size=8g"  # docker run --shm-size=8g, as the documentation says
_PR_SET_NO_NEW_PRIVS = 38


def main() -> None:
    told = json.loads(sys.stdin.read())
    root = Path(told["root"])
    _mount("--bind", root, root)
    for target, source in told["files"].items():
        _mount("--bind", source, root / target)
    _mount("-t", "proc", "proc", root / "proc")
    _mount("-t", "sysfs", "-o", "ro", "sysfs", root / "sys")
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", root / "dev")
    _devices(root / "dev")
    _mount("-t", "tmpfs", "-o", f"mode=1777,{_SHARED_MEMORY}", "tmpfs", root / "dev/shm")
    _mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", root / "tmp")
    for target, source in told["folders"].items():
        _mount("--bind", source, root / target)
    _mount("-o", "remount,bind,ro", root)
    os.chroot(root)
    os.chdir(told["directory"])
    user = _user(told["user"])
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    command: list[str] = told["command"]
    os.execve(command[0], command, told["environment"])


def description(
    config: dict[str, Any],
    root: Path,
    files: dict[str, str],
    folders: dict[str, str],
    environment: dict[str, str],
) -> str:
    """What `main` reads: an image's config, and what is mounted where (targets below the root)."""
    own = dict(variable.split("=", 1) for variable in config["Env"])
    return json.dumps(
        {
            "root": str(root),
            "files": files,
            "folders": folders,
            "directory": config["WorkingDir"],
            "user": config["User"],
            "command": [*config["Entrypoint"], *config["Cmd"]],
            "environment": own | environment,
        }
    )


def _mount(*words: str | Path) -> None:
    subprocess.run(["mount", *map(str, words)], check=True)


def _devices(there: Path) -> None:
    """The usual devices and those of the GPUs."""
    os.umask(0)
    gpus = [path for path in Path("/dev").glob("nvidia*") if stat.S_ISCHR(path.stat().st_mode)]
    for path in [*(Path("/dev", name) for name in _DEVICES), *gpus, *Path("/dev").glob("nvidia-caps/*")]:
        made = there / path.relative_to("/dev")
        made.parent.mkdir(exist_ok=True)
        os.mknod(made, 0o666 | stat.S_IFCHR, path.stat().st_rdev)
    os.umask(0o022)
    for name, target in {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}.items():
        (there / name).symlink_to(target)
    (there / "shm").mkdir()


def _user(name: str) -> int:
    """The number of a user of the image; its group is the same. The root is the image's by now."""
    for line in Path("/etc/passwd").read_text().splitlines():
        fields = line.split(":")
        if fields[0] == name:
            return int(fields[2])
    raise SystemExit(f"the image has no user {name}")


if __name__ == "__main__":
    main()
