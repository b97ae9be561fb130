"""Make a layer, and make it again: only its record is kept, a few kB that say what it is made of.

    python3 -m oci.layer SPEC RECORD

SPEC is JSON: {"name", "steps" (see steps.py), "attributes" (see tar.py), "packages"}, where packages say
what is in it: [{"type", "name", "version", "file", "sha256"}]. RECORD is SPEC with "digest", "size" (bytes,
compressed), "diff_id", "unpacked" (bytes of all files) and "pruned" (see steps.py) of the layer.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from . import steps
from .compress import GzipWriter
from .problem import Problem
from .tar import write_tar
from .tree import Tree

if TYPE_CHECKING:
    from collections.abc import Callable


class Made(NamedTuple):
    digest: str
    size: int
    diff_id: str
    unpacked: int
    pruned: list[dict[str, Any]]


def make(spec: dict[str, Any], output: Callable[[bytes], None]) -> Made:
    """Hand the layer's gzipped tar to `output`. Needs room for its files in the temporary directory."""
    plain, packed = hashlib.sha256(), hashlib.sha256()
    size = 0

    def emit(data: bytes) -> None:
        nonlocal size
        packed.update(data)
        size += len(data)
        output(data)

    with tempfile.TemporaryDirectory(prefix="layer-") as scratch:
        root = Path(scratch).resolve()
        tree = Tree(root)
        pruned = [row for step in spec["steps"] for row in steps.take(step, tree)]
        gzip = GzipWriter(emit)

        def add(data: bytes) -> None:
            plain.update(data)
            gzip.write(data)

        unpacked = write_tar(root, spec["attributes"], add)
        gzip.close()
    return Made(f"sha256:{packed.hexdigest()}", size, f"sha256:{plain.hexdigest()}", unpacked, pruned)


def make_again(record: dict[str, Any], output: Callable[[bytes], None]) -> None:
    """Hand the layer of a record to `output`. Raises Problem when it is not what was recorded."""
    if (digest := make(record, output).digest) != record["digest"]:
        raise Problem(
            f"Layer {record['name']} came out as {digest}, not as the recorded {record['digest']}: "
            f"report this, with the versions of Python and the operating system."
        )


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text())
    record = {**spec, **make(spec, lambda _data: None)._asdict()}
    Path(sys.argv[2]).write_text(json.dumps(record, sort_keys=True))


if __name__ == "__main__":
    try:
        main()
    except Problem as problem:
        sys.exit(str(problem))
