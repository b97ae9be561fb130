"""Images built as users build them, containers in podman, and a registry on loopback."""

import json
import os
import shlex
import shutil
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

from shared.cog.server import free_port

ROOT = Path(__file__).resolve().parents[2]
CPU = "cog-triton-runner-cpu"
BUILDER = "cog-triton-builder"
NAMES = {
    BUILDER,
    CPU,
    *(f"cog-triton-runner-{sm}" for sm in (80, 86, 90, "full")),
    *(f"cog-triton-runner-vllm-{sm}" for sm in (80, 86, 89, 90, 100, 120, "full")),
}
READY_SECONDS = 120
# Works in virtual machines without systemd, too.
PODMAN = ["podman", "--cgroup-manager=cgroupfs", "--events-backend=file", "--runtime=runc"]
# Plays a Nix on a machine that reaches GitHub: nixpkgs, named in the lock, is the directory {nixpkgs}. There, nothing
# is overridden, and the flake knows its commit.
NIX_WITH_GITHUB = """#!/bin/bash
if [[ " $* " = *" --override-input "* ]]; then exec /usr/bin/nix "$@"; fi
lock=--no-write-lock-file
if [[ " $* " = *" flake update "* ]]; then lock=; fi
words=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    words+=("$1")
    shift
done
if [ -z "$(git status --porcelain --untracked-files=no)" ]; then
    COG_TRITON_REVISION=$(git rev-parse HEAD)
    export COG_TRITON_REVISION
    words+=(--impure)
fi
exec /usr/bin/nix "${{words[@]}}" --override-input nixpkgs path:{nixpkgs} $lock \\
    --option sandbox false --option build-users-group '' --option substituters '' "$@"
"""
# podman's own limits are above what a container may have here, and loopback is the only network; docker trusts
# registries there without TLS.
DOCKER = """#!/bin/bash
podman="{podman} --root {store}/root --runroot {store}/run"
verb=$1
shift
case $verb in
run) exec $podman run --network=host --tls-verify=false {limits} "$@" ;;
pull) exec $podman pull --tls-verify=false "$@" ;;
*) exec $podman "$verb" "$@" ;;
esac
"""
LIMITS = ["--ulimit=nofile=10000:10000", "--ulimit=nproc=10000:10000"]


def run(*command, check=True, **options):
    """A program that has ended; its output is text. With `check`, a failure shows what it said."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, **options
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def podman(*arguments, **options):
    return run(*PODMAN, *arguments, **options)


def build_image(name, link, *, root=ROOT, **environment):
    """Build an image of the flake in `root`; the result, an executable file."""
    run(root / "ci/nix", "build", f".#{name}", "--out-link", link, env={**os.environ, **environment})
    return link


def copy_repository(into):
    """What git knows of the repository, as it is now."""
    for name in run("git", "ls-files", cwd=ROOT).stdout.splitlines():
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, into / name, follow_symlinks=False)
    return into


def clone_repository(into):
    """The repository as a reader has it, with the environments of this one, which take a minute to make."""
    copy = copy_repository(into)
    for made in (".venv", ".build"):
        (copy / made).symlink_to(ROOT / made)
    who = ["-c", "user.name=reader", "-c", "user.email=reader@example.com"]
    run("git", "init", "--quiet", cwd=copy)
    run("git", "add", ".", cwd=copy)
    run("git", *who, "commit", "--quiet", "--message=As it is", cwd=copy)
    return copy


def stored_bytes(directory):
    """What the registry in `directory` keeps."""
    return sum(path.stat().st_size for path in directory.rglob("data"))


def shared_directory(factory, name):
    """A folder that the user of a container reaches: pytest's own are closed to others."""
    directory = factory.mktemp(name)
    for folder in (directory, *directory.parents[:3]):
        if folder.stat().st_mode & 0o055 != 0o055 and folder != Path("/"):
            folder.chmod(0o755)
    return directory


class Container:
    """A running container that serves on `url`."""

    def __init__(self, name, port):
        self.name = name
        self.url = f"http://127.0.0.1:{port}"

    def wait_ready(self):
        """The health of a container that has been set up, well or not."""
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            answer = run("curl", "--silent", f"{self.url}/health-check", check=False).stdout
            if answer and (health := json.loads(answer))["status"] in {"READY", "SETUP_FAILED"}:
                return health
            assert self.is_running(), self.logs()
            time.sleep(0.2)
        raise AssertionError(self.logs())

    def is_running(self):
        return podman("inspect", self.name, "--format={{.State.Running}}").stdout.strip() == "true"

    def exec(self, *command, **options):
        return podman("exec", self.name, *command, **options).stdout

    def logs(self):
        done = podman("logs", self.name)
        return done.stdout + done.stderr


@contextmanager
def docker_and_nix(folder):
    """A folder of programs for PATH: `docker` is podman with a store of its own, which is removed in the end, and
    `nix` has this machine's toolchain where it would fetch nixpkgs from GitHub.
    """
    programs = folder / "bin"
    programs.mkdir()
    docker = DOCKER.format(podman=shlex.join(PODMAN), store=folder, limits=shlex.join(LIMITS))
    nixpkgs = shutil.copytree(ROOT / "nix/host-toolchain", folder / "nixpkgs")
    nix = NIX_WITH_GITHUB.format(nixpkgs=nixpkgs)
    for name, text in {"docker": docker, "nix": nix}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    try:
        yield programs
    finally:
        if (folder / "root").exists():
            for removal in (("rm", "--all", "--force"), ("rmi", "--all", "--force")):
                run(programs / "docker", *removal, check=False)
            run("umount", folder / "root/overlay", check=False)


@contextmanager
def container(image, *options, command=()):
    """A container of a loaded image, with a read-only root."""
    port = free_port()
    fixed = ["--network=host", "--read-only", "--tmpfs=/tmp", f"--env=PORT={port}", *LIMITS]
    name = podman("run", "--detach", *fixed, *options, image, *command).stdout.strip()
    try:
        yield Container(name, port)
    finally:
        podman("rm", "--force", "--volumes", name)


@contextmanager
def registry(directory, **settings):
    """A registry on loopback that keeps its blobs in `directory`: host:port."""
    address = f"127.0.0.1:{free_port()}"
    config = directory / "registry.yml"
    storage = {"filesystem": {"rootdirectory": str(directory / "blobs")}}
    document = {"version": "0.1", "storage": storage, "http": {"addr": address}, **settings}
    config.write_text(json.dumps(document))
    with (directory / "registry.log").open("w") as log:
        server = subprocess.Popen(["docker-registry", "serve", str(config)], stdout=log, stderr=log)
    try:
        while run("curl", "--silent", f"http://{address}/v2/", check=False).returncode:
            assert server.poll() is None
            time.sleep(0.05)
        yield address
    finally:
        server.terminate()
        server.wait()
