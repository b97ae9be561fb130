"""Make a layer, and make it again: only its record is kept, a few kB that say what it is made of.

    python3 -m oci.layer SPEC RECORD

SPEC is JSON: {"name", "steps" (see steps.py), "attributes" (see tar.py), "packages", "own"}. Packages say
what is in it: [{"type", "name", "version", "file", "sha256", "path"}], with "commit" in place of file and
sha256 if it comes from a repository; `own` is what we made ourselves, or null: {"name", "version"}. RECORD is
SPEC with "digest", "size" (bytes, compressed), "diff_id" and "tar_size" (of the plain tar), "unpacked" (bytes
of all files) and "pruned" (see steps.py) of the layer, and packages as facts.py describes them.
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
from .facts import described
from .problem import Problem
from .tar import write_tar
from .tree import Tree

if TYPE_CHECKING:
    from collections.abc import Callable


class Made(NamedTuple):
    """What is known about a layer once it is written; sizes in bytes, digests as `sha256:...`."""

    digest: str
    size: int
    diff_id: str
    tar_size: int
    unpacked: int
    pruned: list[dict[str, Any]]


class _Counted:
    """Writes to `output`, and computes digest and size."""

    def __init__(self, output: Callable[[bytes], None]) -> None:
        self._output = output
        self._hash = hashlib.sha256()
        self.size = 0

    def __call__(self, data: bytes) -> None:
        self._hash.update(data)
        self.size += len(data)
        self._output(data)

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"


def make(spec: dict[str, Any], output: Callable[[bytes], None]) -> Made:
    """Write the layer's gzipped tar to `output`. Needs room for its files in the temporary directory."""
    packed = _Counted(output)
    gzip = GzipWriter(packed)
    plain = _Counted(gzip.write)
    unpacked, pruned = _tar(spec, plain)
    gzip.close()
    return Made(packed.digest, packed.size, plain.digest, plain.size, unpacked, pruned)


def make_again(record: dict[str, Any], output: Callable[[bytes], None], *, plain: bool = False) -> None:
    """Write the layer of a record to `output`, as a gzipped tar or a plain one.

    Raises Problem when it differs from the record.
    """
    if plain:
        wanted, counted = record["diff_id"], _Counted(output)
        _tar(record, counted)
        digest = counted.digest
    else:
        wanted, digest = record["digest"], make(record, output).digest
    if digest != wanted:
        raise Problem(
            f"Layer {record['name']} has the digest {digest}, not the recorded {wanted}: "
            f"report this, with the versions of Python and the operating system."
        )


def _tar(spec: dict[str, Any], output: Callable[[bytes], None]) -> tuple[int, list[dict[str, Any]]]:
    """Write the tar to `output`; return the bytes of all files, and what was pruned."""
    with tempfile.TemporaryDirectory(prefix="layer-") as scratch:
        root = Path(scratch).resolve()
        tree = Tree(root)
        pruned = [row for step in spec["steps"] for row in steps.take(step, tree)]
        return write_tar(root, spec["attributes"], output), pruned


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text())
    packages = [described(package) for package in spec["packages"]]
    record = {**spec, **make(spec, lambda _data: None)._asdict(), "packages": packages}
    Path(sys.argv[2]).write_text(json.dumps(record, sort_keys=True))


if __name__ == "__main__":
    try:
        main()
    except Problem as problem:
        sys.exit(str(problem))
