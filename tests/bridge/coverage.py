"""Which lines and branches of the bridge its tests run: `make bridge-coverage`.

They run against a bridge that counts: the tests with hostile ends, and those with a real Triton.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from shared.layout import PROJECT_ROOT, Layout
from tests.bridge.build import BRIDGE, COUNTED, library, program

WITH_TRITON = ("bridge", "feed", "engine_frames", "tritonclient", "ensemble", "vllm_backend", "faults")
ROUNDS = {"steps": 4000, "lives": 60}


@dataclass
class Counts:
    """Of one source: how often each line ran, and each way out of each branch."""

    lines: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    branches: dict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))


def read(folder: Path, found: dict[str, Counts]) -> None:
    """Add what the program made in `folder` has counted."""
    for counted in sorted(folder.glob("*.gcda")):
        command = ["gcov", "--json-format", "--stdout", "--branch-probabilities", str(counted)]
        text = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout
        for file in (file for line in text.splitlines() for file in json.loads(line)["files"]):
            if Path(folder, file["file"]).resolve().parent != BRIDGE:
                continue
            counts = found[Path(file["file"]).name]
            for line in file["lines"]:
                counts.lines[line["line_number"]] += line["count"]
                for number, branch in enumerate(line["branches"]):
                    counts.branches[line["line_number"], number] += branch["count"]


def table(found: dict[str, Counts]) -> str:
    """A row per source, with the lines that did not run, and one for all."""
    rows = [f"{'source':<20}{'lines':>14}{'branches':>16}  lines that do not run"]
    for name, counts in sorted(found.items()):
        idle = ", ".join(str(line) for line, ran in sorted(counts.lines.items()) if not ran)
        rows.append(_row(name, list(counts.lines.values()), list(counts.branches.values()), idle))
    lines = [ran for counts in found.values() for ran in counts.lines.values()]
    branches = [ran for counts in found.values() for ran in counts.branches.values()]
    return "\n".join([*rows, _row("all", lines, branches, "")])


def _row(name: str, lines: list[int], branches: list[int], idle: str) -> str:
    shares = [
        f"{100 * sum(map(bool, ran)) / max(len(ran), 1):5.1f} % of {len(ran):>4}" for ran in (lines, branches)
    ]
    return f"{name:<20}{shares[0]:>14}{shares[1]:>16}  {idle}".rstrip()


def with_triton(folder: Path) -> int:
    """Run the tests with a real Triton, on a bridge that counts into `folder`."""
    home = Layout.current().home
    with tempfile.TemporaryDirectory() as other:
        for part in home.iterdir():
            if part.name != "bridge":
                Path(other, part.name).symlink_to(part)
        made = library(folder, COUNTED)
        place = Path(other, "bridge/engine_bridge")
        place.mkdir(parents=True)
        Path(place, made.name).symlink_to(made)
        files = [f"tests/integration/test_{name}.py" for name in WITH_TRITON]
        command = [sys.executable, "-m", "pytest", "-q", "-n", "3", "--dist", "loadfile", *files]
        environment = {**os.environ, "COG_TRITON_HOME": other}
        return subprocess.run(command, cwd=PROJECT_ROOT, env=environment, check=False).returncode


def main() -> int:
    argparse.ArgumentParser(prog="tests.bridge.coverage", description=__doc__).parse_args()
    found: dict[str, Counts] = defaultdict(Counts)
    with tempfile.TemporaryDirectory() as scratch:
        for name, rounds in ROUNDS.items():
            made = program(name, Path(scratch, name), COUNTED)
            subprocess.run([made, "1", str(rounds)], check=True, stderr=subprocess.DEVNULL)
            read(made.parent, found)
        status = with_triton(Path(scratch, "library"))
        read(Path(scratch, "library"), found)
    print(table(found))
    return status


if __name__ == "__main__":
    sys.exit(main())
