"""Type the commands of one page: `python -m tests.docs.session PAGE`, in the copy of the repository.

In namespaces of its own: ports are free, nothing but loopback is reached, and everything that was started
ends with it. What the pages take from elsewhere has stand-ins: the hub serves the demo's model, registries
are on loopback, Replicate is tests/support/replicate.py, `docker` is podman with a store of its own, and
`nix` has this machine's toolchain where it would fetch nixpkgs from GitHub.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.docs.pages import Block, blocks
from tests.support.hub import Hub, Repository
from tests.support.images import docker_and_nix
from tests.support.replicate import API, TOKEN, make_certificate, replicate
from tests.support.uploads import Uploads

if TYPE_CHECKING:
    from collections.abc import Iterator

HUB_MODELS = ("HuggingFaceTB/SmolLM2-135M-Instruct",)
READY_SECONDS = 120
REPLICATE = ("127.0.0.2", 443)  # the registries are at the first address
REGISTRIES = ("r8.im", "ghcr.io")
START = """set -eo pipefail
at() { place=$1; echo "== $1: $2" >&2; }
trap 'status=$?; trap - EXIT; [ $status = 0 ] || echo "!! $place: exit status $status" >&2; exit $status' EXIT
until_says() {
    for _ in $(seq {tries}); do
        if curl --silent "$1" | grep --quiet --fixed-strings -- "$2"; then return; fi
        if ! kill -0 $!; then return 1; fi
        sleep 0.1
    done
    echo "$1 did not say $2" >&2
    return 1
}
"""


def script(page: list[Block]) -> str:
    """What the shell reads for a page."""
    parts = [START.replace("{tries}", str(READY_SECONDS * 10))]
    for block in page:
        if block.file:
            parts.append(
                f"cat > {shlex.quote(block.file)} << 'END OF FILE'\n"
                + "\n".join([*block.lines, "END OF FILE"])
            )
        if block.not_run:
            continue
        for number, (line, command) in enumerate(block.commands, 1):
            at = f"at {block.page}:{line} {shlex.quote(command)}"
            last = number == len(block.commands)
            if last and block.background:
                until, says = (shlex.quote(word) for word in block.background)
                parts.append(f"{at}\n{{ {command}\n}} &\nuntil_says {until} {says}")
            elif last and block.status:
                parts.append(f"{at}\nstatus=0\n{{ {command}\n}} || status=$?\n[ $status = {block.status} ]")
            else:
                parts.append(f"{at}\n{command}")
    return "\n".join(parts) + "\n"


def main() -> int:
    page = Path(sys.argv[1])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        Hub() as hub,
        registry(Path(folder)) as tls,
        docker_and_nix(Path(folder)) as programs,
        replicate("r8.im", tls, docker=programs / "docker", address=REPLICATE),
        Uploads() as files,
    ):
        hub.repositories.update({name: Repository(Path("demo/model").resolve()) for name in HUB_MODELS})
        Path(folder, "auth.json").write_text("{}")
        typed = Path(folder, "page.bash")
        typed.write_text(script(blocks(str(page), page.read_text())))
        environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HF_ENDPOINT": hub.url,
            "HF_HOME": f"{folder}/huggingface",
            "XDG_CACHE_HOME": f"{folder}/cache",
            "REPLICATE_API_TOKEN": TOKEN,
            "UPLOAD_URL": f"{files.url}/engine.tar",
            "WEIGHTS_URL": f"{files.url}/engine.tar",
            "REGISTRY_AUTH_FILE": f"{folder}/auth.json",
            "SSL_CERT_FILE": str(tls[0]),
            "CURL_CA_BUNDLE": str(tls[0]),
            "TOOLCHAIN": "host",  # `nix` alone plays a machine with GitHub
        }
        # As typed at a terminal: a program without a pipe has no input.
        done = subprocess.run(["bash", typed], stdin=subprocess.DEVNULL, env=environment, check=False)
    return done.returncode


@contextmanager
def registry(folder: Path) -> Iterator[tuple[Path, Path]]:
    """The registries that pages name, on loopback; yields the certificate that they have to be trusted by, which
    Replicate's API also has, and its key.
    """
    hosts, config = folder / "hosts", folder / "registry.yml"
    certificate, key = make_certificate(folder, API, *REGISTRIES)
    hosts.write_text(f"127.0.0.1 {' '.join(['localhost', *REGISTRIES])}\n{REPLICATE[0]} {API}\n")
    subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)
    tls = {"certificate": str(certificate), "key": str(key)}
    storage = {"filesystem": {"rootdirectory": str(folder / "registry")}}
    config.write_text(
        json.dumps({"version": "0.1", "storage": storage, "http": {"addr": "127.0.0.1:443", "tls": tls}})
    )
    with (folder / "registry.log").open("w") as log:
        server = subprocess.Popen(["docker-registry", "serve", config], stdout=log, stderr=log)
    try:
        yield certificate, key
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    sys.exit(main())
