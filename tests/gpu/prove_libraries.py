"""Prove, on any machine, that pruning changes nothing but device code of other GPU architectures.

    python -m tests.gpu.prove_libraries --site SITE_PACKAGES --cuobjdump CUOBJDUMP --scratch DIR --sm 80 86 90 --cut \\
        --page docs/pruning-libraries.md

A copy of the folder SITE_PACKAGES (of links: pruning makes new files) is pruned as a whole. Then, for every library
with device code: NVIDIA's cuobjdump (a wheel on PyPI, nvidia-cuda-cuobjdump) lists the expected set in both; memory
is the same outside the removed code; the dynamic loader treats both alike; readelf warns of nothing new; a second run
changes nothing. Sizes are those of files, and compressed as the images' layers are, for which the wheels of
requirements/tools.txt are needed; --page writes them as a table. Exits with status 1 when a proof fails.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from nix.prune import LibraryReport, Outcome, prune_wheel_tree
from tests.gpu import page
from tests.gpu.fatbins import Code, Image, expected
from tests.gpu.sizes import compressed, sizes

if TYPE_CHECKING:
    from collections.abc import Iterable

_CHUNK = 1 << 24
_LISTED = re.compile(r"^(ELF|PTX) file +\d+: .*\.(sm_\d+[af]?)\.(?:cubin|ptx)$", re.MULTILINE)
_LOAD = """
import ctypes, sys
try:
    ctypes.CDLL(sys.argv[1])
    print("loaded")
except OSError:
    try:
        import torch  # brings the libraries of the NVIDIA wheels
        ctypes.CDLL(sys.argv[1])
        print("loaded")
    except OSError as error:
        print(error)
"""


@dataclass
class Proof:
    """One library for one architecture: what went wrong, and its sizes in bytes, before and after."""

    library: str
    sm: int
    failures: list[str] = field(default_factory=list)
    loading: str = ""
    size: tuple[int, int] = (0, 0)
    compressed: tuple[int, int] = (0, 0)
    device: tuple[int, int] = (0, 0)


@dataclass
class Totals:
    """All files for one architecture: (before, left out whole, after) in bytes, by "files", "gzip" and "zstd"."""

    sizes: dict[str, tuple[int, int, int]]
    left_out: dict[str, int]


def prove(original: Path, pruned: Path, report: LibraryReport, sm: int, arguments) -> Proof:
    proof = Proof(report.path, sm, size=(report.size_before, report.size_after))
    proof.device = (sum(report.device_before.values()), sum(report.device_after.values()))
    if report.outcome is Outcome.REFUSED:
        proof.failures.append(report.reason)
        return proof
    before, after = Image(original), Image(pruned)
    wanted = {address: expected(codes, sm) for address, codes in before.containers().items()}
    check_entries(wanted, before, after, proof)
    check_memory(before, after, proof, cut=arguments.cut)
    if original.samefile(pruned):
        proof.failures.append("changed in place")
    if wanted:
        check_listing(original, before.containers().values(), arguments.cuobjdump, proof)
        check_listing(pruned, wanted.values(), arguments.cuobjdump, proof)
    if new := warnings(pruned) - warnings(original):
        proof.failures.append(f"readelf: {min(new)}")
    proof.loading = loading(pruned, arguments.copy, arguments.python)
    was = loading(original, arguments.site, arguments.python)
    if proof.loading != was:
        proof.failures.append(f"loading: {was!r} before, {proof.loading!r} after")
    if arguments.compress:
        proof.compressed = (compressed(original), compressed(pruned))
    return proof


def check_entries(wanted: dict[int, list[Code]], before: Image, after: Image, proof: Proof) -> None:
    """The containers that were there, in their order, each with what should be left; and found where they are."""
    found = after.containers()
    if contents(found.values()) != contents(wanted.values()):
        proof.failures.append("the device code left is not what should be left")
    for place, address in before.references().items():
        new = after.word(place)
        # The word that a relocation fills may hold something else in the file.
        is_filled = before.word(place) != address and new == before.word(place)
        if not is_filled and contents([found.get(new, [])]) != contents([wanted[address]]):
            proof.failures.append(f"what stands at {place:#x} leads to other device code than before")
            return


def contents(containers: Iterable[list[Code]]) -> list[list[memoryview]]:
    return [[code.content for code in codes] for codes in containers]


def check_memory(before: Image, after: Image, proof: Proof, *, cut: bool) -> None:
    """Same segments, and same bytes outside of device code and the two headers; in a cut file also outside of
    what points at device code. In stores, zeros where there was code that is not for this architecture.
    """
    if before.others != after.others:
        proof.failures.append("other program headers than before")
    unusable = before.unusable(proof.sm)
    if any(bytes(after.read(*place)).strip(b"\0") for place in unusable):
        proof.failures.append("code that should not be left in a store")
    skipped = [(address, address + size) for _, address, size in before.sections] + unusable
    if cut:
        skipped += [(address, address + 8) for address in before.references()]
    skipped = sorted(skipped + before.header_addresses())
    for start, end, _ in before.pieces():
        at = start
        for low, high in [*skipped, (end, end)]:
            stop = min(max(low, start), end)
            while at < stop:
                part = min(stop, at + _CHUNK)
                if before.read(at, part) != after.read(at, part):
                    proof.failures.append(f"memory differs between {at:#x} and {part:#x}")
                    return
                at = part
            at = max(at, min(high, end))


@cache
def listing(path: Path, cuobjdump: Path) -> Counter[tuple[str, str]]:
    """What cuobjdump lists: how often (ELF or PTX, sm_86)."""
    listed: Counter[tuple[str, str]] = Counter()
    for option in ("--list-elf", "--list-ptx"):
        run = subprocess.run([cuobjdump, "-all", option, path], capture_output=True, text=True, check=False)
        if run.returncode and "found to extract" not in run.stdout + run.stderr:
            raise RuntimeError(f"cuobjdump: {(run.stderr or run.stdout).strip()[:200]}")
        listed.update(_LISTED.findall(run.stdout))
    return listed


def check_listing(path: Path, containers, cuobjdump: Path, proof: Proof) -> None:
    """What cuobjdump lists, against what should be in the library."""
    listed = listing(path, cuobjdump)
    # It names a family (sm_100f) as its first member.
    known = Counter(
        ("PTX" if code.is_ptx else "ELF", code.target.removesuffix("f"))
        for codes in containers
        for code in codes
    )
    if listed != known:
        proof.failures.append(
            f"cuobjdump lists {dict(listed - known)} too much, {dict(known - listed)} too little"
        )


@cache
def warnings(path: Path) -> set[str]:
    run = subprocess.run(["readelf", "-hlSdnVW", path], capture_output=True, text=True, check=False)
    return {re.sub(r"0x[0-9a-f]+", "N", line) for line in run.stderr.splitlines()}


@cache
def loading(path: Path, site: Path, python: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.run(
        [python, "-c", _LOAD, path], capture_output=True, text=True, check=False, env=environment, cwd="/"
    )
    return (run.stdout.strip() or f"status {run.returncode}").replace(str(site), "")


def digests(root: Path, libraries: list[LibraryReport]) -> dict[str, str]:
    found = {}
    for library in libraries:
        with (root / library.path).open("rb") as file:
            found[library.path] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def prove_tree(sm: int, arguments, known: dict[tuple[str, str], Proof]) -> tuple[list[Proof], Totals]:
    """Every library of a pruned copy, and the sizes of the whole; what came out as for another SM is `known`."""
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as scratch:
        arguments.copy = Path(scratch, "site-packages")
        shutil.copytree(arguments.site, arguments.copy, symlinks=True, copy_function=os.link)
        report = prune_wheel_tree(arguments.copy, sm, cut=arguments.cut)
        changed = [library for library in report.libraries if library.outcome is Outcome.PRUNED]
        before = digests(arguments.copy, changed)
        again = prune_wheel_tree(arguments.copy, sm, cut=arguments.cut)
        steady = before == digests(arguments.copy, changed)
        steady &= (
            not any(library.outcome is Outcome.PRUNED for library in again.libraries) and not again.records
        )
        proofs = []
        for library in report.libraries:
            if not library.has_device_code and library.outcome is not Outcome.PRUNED:
                continue
            started = time.monotonic()
            key = (library.path, before.get(library.path, ""))
            if not library.has_device_code and key in known:
                proof = replace(known[key], sm=sm, failures=list(known[key].failures))
            else:
                original, pruned = arguments.site / library.path, arguments.copy / library.path
                proof = known[key] = prove(original, pruned, library, sm, arguments)
            if not steady:
                proof.failures.append("a second run changes something")
            seconds = time.monotonic() - started
            outcome = "; ".join(proof.failures) or "proven"
            print(f"sm_{sm} {library.path}: {outcome} ({seconds:.1f} s)", file=sys.stderr)
            proofs.append(proof)
        left_out = Path(scratch, "left-out")
        for path in report.removed:
            (left_out / path).parent.mkdir(parents=True, exist_ok=True)
            (left_out / path).hardlink_to(arguments.site / path)
        after, apart = (sizes(root, compress=arguments.compress) for root in (arguments.copy, left_out))
        totals = {way: (arguments.sizes[way], apart.get(way, 0), after[way]) for way in after}
        return proofs, Totals(sizes=totals, left_out=report.removed)


def _place(text: str) -> Path:
    """From wherever libraries are loaded. Not resolved: a link to Python says which environment it is of."""
    return Path(text).absolute()


def _program(text: str) -> Path:
    return _place(shutil.which(text) or text)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu.prove_libraries",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--site", type=_place, required=True)
    parser.add_argument("--cuobjdump", type=_place, required=True)
    parser.add_argument(
        "--python", type=_program, default=Path(sys.executable), help="of the libraries' own version"
    )
    parser.add_argument("--sm", type=int, nargs="+", default=[80, 86, 90])
    parser.add_argument(
        "--scratch", type=_place, required=True, help="where the copies are made, on the folder's file system"
    )
    parser.add_argument(
        "--no-compression",
        dest="compress",
        action="store_false",
        help="leave compressed sizes out: four times faster",
    )
    parser.add_argument("--cut", action="store_true", help="cut the removed code out of the files")
    parser.add_argument("--page", type=Path, help="write the table here")
    arguments = parser.parse_args()
    for path in (arguments.site, arguments.cuobjdump, arguments.scratch, arguments.python):
        if not path.exists():
            parser.error(f"{path} does not exist")
    proofs: list[Proof] = []
    totals: dict[int, Totals] = {}
    known: dict[tuple[str, str], Proof] = {}
    arguments.sizes = sizes(arguments.site, compress=arguments.compress)
    for sm in arguments.sm:
        found, totals[sm] = prove_tree(sm, arguments, known)
        proofs += found
    if arguments.page:
        arguments.page.write_text(page.written(page.head_of(arguments.site), proofs, totals))
    failed = [asdict(proof) for proof in proofs if proof.failures]
    summary = {sm: asdict(total) for sm, total in totals.items()}
    print(json.dumps({"proven": len(proofs) - len(failed), "failed": failed, "totals": summary}, indent=1))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
