"""Load an image into docker or podman, whichever is installed."""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from .archive import stream, write_small_files
from .demand import copy_on_demand
from .problem import Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from .image import Image


def load(image: Image, tell: Callable[[str], None]) -> None:
    """Load under the image's names. Raises Problem when there is nothing to load it into."""
    if shutil.which("docker") and not _failed(["docker", "version"]):
        _into_docker(image, tell)
    elif shutil.which("podman"):
        _into_podman(image, tell)
    else:
        raise Problem(
            "Neither a running docker nor podman was found: start or install one, or use the verb `layout`."
        )


def _into_docker(image: Image, tell: Callable[[str], None]) -> None:
    """As an archive, which is all that docker accepts."""
    with subprocess.Popen(["docker", "load"], stdin=subprocess.PIPE) as loading:
        assert loading.stdin is not None
        with loading.stdin as pipe:
            stream(image, pipe, tell)
    if loading.returncode:
        raise Problem("`docker load` failed; its reason is above.")
    latest, content = _full_names(image)
    # A docker that keeps images in containerd reads only one name from an archive.
    if _failed(["docker", "tag", latest, content]):
        raise Problem(f"docker has loaded {latest}, but could not name it {content}.")


def _into_podman(image: Image, tell: Callable[[str], None]) -> None:
    """As plain tars; only those that podman lacks are made."""
    plain = image.plain()
    with tempfile.TemporaryDirectory() as scratch:
        # podman names it after the path that it gets, which must be a valid name.
        layout = Path(scratch, f"load-{secrets.token_hex(8)}")
        layout.mkdir()
        write_small_files(plain, layout)
        copy_on_demand(
            plain,
            layout,
            ["podman", "pull", "--quiet", f"oci:{layout.name}"],
            known=_known_to_podman(),
            directory=layout.parent,
            explain=lambda complaint: f"podman could not load it: {complaint.splitlines()[-1]}",
            tell=tell,
        )
        identity = image.config.digest.removeprefix("sha256:")
        names = _full_names(image)
        if _failed(["podman", "tag", identity, *names]):
            raise Problem(f"podman has loaded {identity}, but could not name it {names[0]}.")
        _failed(["podman", "untag", identity, f"localhost/{layout.name}:latest"])
    tell(f"{names[0]} is loaded, also as {names[1].rpartition('/')[2]}.")


def _full_names(image: Image) -> list[str]:
    """With the registry that docker assumes for a name without one, which podman does not always."""
    return [f"docker.io/library/{name}" for name in image.names]


def _known_to_podman() -> set[str]:
    """The diff_ids of the layers of all its images."""
    images = _output(["podman", "images", "--quiet", "--no-trunc"]).split()
    if not images:
        return set()
    inspected = json.loads(_output(["podman", "image", "inspect", *sorted(set(images))]) or "[]")
    return {layer for image in inspected for layer in image["RootFS"]["Layers"]}


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _failed(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode != 0
