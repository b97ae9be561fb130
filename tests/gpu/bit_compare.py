"""Compare, bit by bit, what a GPU computes with PyTorch's libraries as they are and pruned for one architecture.

    python3 tests/gpu/bit_compare.py --scratch DIR [--sm 90] [--report FILE]

Run it with a Python that has PyTorch for CUDA. Copies of the installed `torch` and `nvidia` folders are made below
DIR and pruned: two for the GPU's own architecture, removed code being zeros in one and cut out of the files in the
other, and one for another architecture, which must fail (the negative control).
Each operation of operations/ runs in two processes with the original, whose results tell which operations are
the same twice, and then with the pruned copies, loading kernels when they are needed and all at once.

Prints a JSON summary; exits with status 1 when a result differs, or when the control does not fail.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FOLDERS = ("torch", "nvidia")
_START_UP = ("import_seconds", "first_kernel_seconds", "mappings")
_WORKER_SECONDS = 200


def work(libraries: Path, site: Path) -> dict[str, object]:
    """Every operation once, in this process; prints a digest, or the error that it raised, for each."""
    started = time.monotonic()
    import operations
    import torch

    torch.cuda.init()
    for name, operation in operations.operations().items():
        try:
            done = {"results": operations.digest(operation(operations.Inputs(name)))}
        except Exception as error:
            done = {"errors": f"{type(error).__name__}: {error}".splitlines()[0][:160]}
        print(json.dumps({"operation": name, **done}), flush=True)
    mapped = mapped_files()
    return {
        "seconds": round(time.monotonic() - started, 1),
        "libraries": len(below(libraries, mapped)),
        "foreign": [] if libraries == site else sorted(below(site, mapped)),
    }


def mapped_files() -> list[str]:
    """One line for each mapping of this process: the file, or nothing."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line.split(maxsplit=5)[5] if len(line.split(maxsplit=5)) == 6 else "" for line in lines]


def below(place: Path, mapped: list[str]) -> set[str]:
    folders = tuple(f"{place / folder}/" for folder in _FOLDERS)
    return {path for path in mapped if path.startswith(folders) and ".so" in path}


def start_up() -> dict[str, float]:
    """Import PyTorch and run one kernel, in this process."""
    started = time.monotonic()
    import torch

    imported = time.monotonic() - started
    torch.ones(9, device="cuda").sum().item()
    return {
        "import_seconds": imported,
        "first_kernel_seconds": time.monotonic() - started,
        "mappings": len(mapped_files()),
    }


def run(libraries: Path, site: Path, loading: str, what: str = "--operations") -> dict:
    """The operations (or the start-up) in a process of its own, with the libraries of that folder."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(libraries),
        "PYTHONDONTWRITEBYTECODE": "1",
        "CUDA_MODULE_LOADING": loading,
        "CUDA_CACHE_DISABLE": "1",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "LD_LIBRARY_PATH": ":".join(
            [
                *sorted({str(path.parent) for path in (libraries / "nvidia").rglob("*.so*")}),
                os.environ.get("LD_LIBRARY_PATH", ""),
            ]
        ),
    }
    command = [sys.executable, __file__, what, str(libraries), str(site)]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, check=False, timeout=_WORKER_SECONDS
        )
    except subprocess.TimeoutExpired as late:
        return {**found_in(late.stdout or b""), "ended": f"took more than {_WORKER_SECONDS} s"}
    found = found_in(done.stdout)
    if done.returncode:
        found["ended"] = f"status {done.returncode}: {done.stderr.decode(errors='replace')[-1000:]}"
    return found


def found_in(output: bytes) -> dict:
    """What a process has said, also if it ended in the midst of it."""
    found: dict = {"results": {}, "errors": {}}
    for line in output.split(b"\n")[:-1]:
        if not line.startswith(b"{"):
            continue
        said = json.loads(line)
        if "operation" in said:
            name = said.pop("operation")
            for kind, value in said.items():
                found[kind][name] = value
        else:
            found |= said
    return found


def copy_pruned(site: Path, target: Path, sm: int, *, cut: bool = False) -> dict[str, object]:
    """A copy of the libraries, pruned. Returns its sizes, the time, and what was refused."""
    sys.path.insert(0, str(ROOT / "nix"))
    from prune import prune_wheel_tree

    for folder in _FOLDERS:
        shutil.copytree(
            site / folder, target / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    started = time.monotonic()
    report = prune_wheel_tree(target, sm, cut=cut)
    libraries = report.libraries
    return {
        "bytes_cut": sum(library.cut for library in libraries),
        "sm": sm,
        "libraries": sum(1 for library in libraries if library.has_device_code),
        "bytes_before": sum(library.size_before for library in libraries),
        "bytes_after": sum(library.size_after for library in libraries),
        "device_bytes_before": sum(sum(library.device_before.values()) for library in libraries),
        "device_bytes_after": sum(sum(library.device_after.values()) for library in libraries),
        "remarks": {library.path: library.reason for library in libraries if library.reason},
        "seconds": round(time.monotonic() - started, 1),
    }


def differing(wanted: dict[str, str], found: dict) -> dict[str, str]:
    """Operations whose result is not the wanted one, and what was instead."""
    return {
        name: found["errors"].get(
            name, "other bits" if name in found["results"] else found.get("ended", "missing")
        )
        for name, digest in wanted.items()
        if found["results"].get(name) != digest
    }


def compare(scratch: Path, sm: int, control_sm: int) -> dict:
    site = Path(importlib.util.find_spec("torch").submodule_search_locations[0]).resolve().parent
    zeroed, cut, control = scratch / "zeroed", scratch / "cut", scratch / "control"
    with ThreadPoolExecutor() as pool:
        originals = [pool.submit(run, site, site, "LAZY") for _ in range(2)]
        pruning = pool.submit(copy_pruned, site, zeroed, sm)
        cutting = pool.submit(copy_pruned, site, cut, sm, cut=True)
        pool.submit(copy_pruned, site, control, control_sm).result()
        summary = {"zeroed": pruning.result(), "cut": cutting.result()}
        original, again = (one.result() for one in originals)
        ways = [(place, loading) for place in (zeroed, cut) for loading in ("LAZY", "EAGER")]
        loaded = {(place.name, loading): pool.submit(run, place, site, loading) for place, loading in ways}
        controlled = run(control, site, "LAZY")
        found = {way: one.result() for way, one in loaded.items()}
    same = {
        name: digest for name, digest in original["results"].items() if again["results"].get(name) == digest
    }
    # Without its code a library may end the process: what was not tried then says nothing.
    answers = {**controlled["results"], **controlled["errors"]}
    tried = {name: digest for name, digest in same.items() if name in answers}
    failing = differing(tried, controlled)
    summary |= {
        "operations": len(original["results"]) + len(original["errors"]),
        "comparable": len(same),
        "differ_without_pruning": sorted(set(original["results"]) - set(same)),
        "fail_without_pruning": original["errors"],
        "original": figures(original),
    }
    failures = []
    for (place, loading), one in found.items():
        bad = differing(same, one)
        summary[f"{place}_{loading.lower()}"] = {
            **figures(one),
            "identical": len(same) - len(bad),
            "differing": bad,
        }
        if bad or one.get("foreign"):
            failures.append(
                f"{place}, {loading}: {len(bad)} results differ, foreign libraries: {one.get('foreign')}"
            )
    summary["control"] = {
        **figures(controlled),
        "sm": control_sm,
        "tried": len(tried),
        "failing": len(failing),
        "passing": sorted(set(tried) - set(failing)),
        "not_tried": [name for name in same if name not in answers],
    }
    if len(same) < 250:
        failures.append(f"only {len(same)} operations can be compared")
    # Some pass: cuFFT has code that every GPU can compile, and PyTorch compiles a few kernels when they are called.
    if len(tried) < 250 or len(failing) < 0.8 * len(tried):
        failures.append(f"the control for sm_{control_sm} fails only {len(failing)} of {len(tried)}")
    if not failures:
        summary["start_up"] = start_ups({"original": site, "zeroed": zeroed, "cut": cut}, site)
    return {**summary, "failures": failures}


def start_ups(places: dict[str, Path], site: Path) -> dict[str, dict]:
    """The fastest of five starts of each, in turn."""
    runs: dict[str, list[dict]] = {name: [] for name in places}
    for _ in range(5):
        for name, place in places.items():
            runs[name].append(run(place, site, "LAZY", "--start-up"))
    return {
        name: {key: round(min(one[key] for one in many), 3) for key in _START_UP}
        for name, many in runs.items()
    }


def figures(found: dict) -> dict:
    return {key: found.get(key) for key in ("seconds", "libraries", "foreign", "ended") if key in found}


def own_sm() -> int:
    code = "import torch; major, minor = torch.cuda.get_device_capability(); print(10 * major + minor)"
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if asked.returncode:
        sys.exit(f"{sys.executable} has no PyTorch that sees a GPU: {asked.stderr.strip().splitlines()[-1]}")
    return int(asked.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scratch", type=Path, help="an existing, empty folder with 16 GB free")
    parser.add_argument("--sm", type=int, help="default: the GPU's")
    parser.add_argument("--report", type=Path, help="write the summary here too")
    for own in ("--operations", "--start-up"):
        parser.add_argument(own, type=Path, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.operations or options.start_up:
        print(json.dumps(work(*options.operations) if options.operations else start_up()))
        return 0
    if not options.scratch:
        parser.error("--scratch is needed")
    sm = options.sm or own_sm()
    summary = compare(options.scratch.resolve(), sm, 90 if sm // 10 == 8 else 80)
    text = json.dumps(summary, indent=1)
    if options.report:
        options.report.write_text(text)
    print(text)
    return int(bool(summary["failures"]))


if __name__ == "__main__":
    sys.exit(main())
