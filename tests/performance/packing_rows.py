"""The end of a build: how fast an engine is packed, compared with `sha256sum FILES && tar cf`;
and our memory on the way there.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from shared.artifact import EngineFacts, PackedFile, write_archive
from tests.performance.row import Row
from tests.support.tensorrt_llm.large import build_of

RUNS = 5
ENGINE_BYTES = 1 << 30
RANKS = 2
MODEL_BYTES = 2_000_000_000
FACTS = EngineFacts(engine="mock", model="x", cog_triton_version="0")


def packing(directory: Path) -> float:
    """How fast an engine is packed, as a multiple of the speed of the two programs; the median of the runs."""
    files = [directory / f"rank{rank}.engine" for rank in range(RANKS)]
    block = os.urandom(1 << 20)
    for path in files:
        with path.open("wb") as file:
            for _ in range(ENGINE_BYTES // RANKS // len(block)):
                file.write(block)
    packed = [PackedFile("config.json", b"{}"), *(PackedFile(f"engine/{path.name}", path) for path in files)]
    ratios = []
    for _ in range(RUNS):
        names = [str(path) for path in files]
        theirs = _seconds(
            lambda names=names: (
                subprocess.run(["sha256sum", *names], check=True, stdout=subprocess.DEVNULL),
                subprocess.run(["tar", "-C", "/", "-cPf", str(directory / "theirs.tar"), *names], check=True),
            )
        )
        ours = _seconds(lambda: write_archive(directory / "ours.tar", FACTS, packed))
        ratios.append(theirs / ours)
    return statistics.median(ratios)


def _seconds(action) -> float:
    # What was written before is not to be paid for in this action.
    os.sync()
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as directory:
        ratio = packing(Path(directory))
    with tempfile.TemporaryDirectory() as directory:
        built = build_of(Path(directory), MODEL_BYTES)
    return [
        Row("packing an engine: speed / that of `sha256sum FILES && tar cf`", ratio, "x", at_least=0.8),
        Row("our memory while a model of 2 GB is built", built["peak"] / 1e6, "MB", at_most=300),
        Row("bytes read for each byte of the engine", built["read"] / built["size"], at_most=1.01),
        Row("bytes written for each byte of the engine", built["written"] / built["size"], at_most=1.01),
    ]
