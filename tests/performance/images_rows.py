"""How fast images are made: from packages that were fetched before, and after a change of our own code.

Needs what the tests of the images need: root, nix-bin, docker-registry, skopeo.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from tests.performance.row import Row
from tests.support.images import CPU, build_image, copy_repository, registry, run, stored_bytes


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        for name in ("checkout", "registry"):
            (directory / name).mkdir()
        checkout = copy_repository(directory / "checkout")
        link = directory / "result"
        build_image(CPU, link, root=checkout)
        # Every layer depends on the programs that make layers.
        edit(checkout / "nix/oci/problem.py")
        made = timed(lambda: build_image(CPU, link, root=checkout))
        with registry(directory / "registry") as host:
            run(link, "push", f"{host}/runner:1")
            before = stored_bytes(directory / "registry")
            edit(checkout / "runner/prediction/inputs.py")
            rebuilt = timed(lambda: build_image(CPU, link, root=checkout))
            pushed = timed(lambda: run(link, "push", f"{host}/runner:2"))
            sent = stored_bytes(directory / "registry") - before
    return [
        Row("all layers of the CPU's runner, from packages at hand", made, "s", at_most=60),
        Row("a change of our code: rebuild and push", rebuilt + pushed, "s", at_most=3),
        Row("a change of our code: bytes pushed", sent / 1000, "kB", at_most=300),
    ]


def edit(module: Path) -> None:
    module.write_text(f"{module.read_text()}\n# {time.time_ns()}\n")


def timed(action) -> float:
    started = time.monotonic()
    action()
    return time.monotonic() - started
