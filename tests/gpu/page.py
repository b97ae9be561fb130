"""The page of measured sizes."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from importlib import metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_HEAD = """# What pruning saves, library by library

Made by the command at the end; do not edit. MB are 10^6 bytes. "gzip" is the compressor of the images' layers, over
each file, and over a tar of everything as a layer is made. How pruning works: [pruning.md](pruning.md).

Measured on {day}, of vLLM {vllm} and torch {torch}, with the rules that `nix/prune` had on that day;
[pruning.md](pruning.md#what-changes-in-the-file) says what it leaves out today.

"""
COMMAND = """
## How this was made

<!-- not run: takes hours and 30 GB -->
```console
$ python3.13 -m venv .build/env
$ .build/env/bin/pip install --no-deps --no-compile --require-hashes -r requirements/engine-vllm.txt
$ .venv/bin/pip install --target .build/cuobjdump nvidia-cuda-cuobjdump
$ .venv/bin/pip install --target .build/tools --require-hashes -r requirements/tools.txt
$ PYTHONPATH=.build/tools .venv/bin/python -m tests.gpu.prove_libraries --python .build/env/bin/python --scratch .build \\
      --site .build/env/lib/python3.13/site-packages --cuobjdump .build/cuobjdump/nvidia/cu13/bin/cuobjdump \\
      --sm 80 86 90 --cut --page docs/pruning-libraries.md
```

The same command proves that nothing else changed; it fails when a library is not proven.
"""
_LAYER = """
## The whole environment

A row is the site-packages folder for one SM; "gzip" is a tar of it as the images' layers are made and compressed (the
layer also has the commands of the wheels, which nothing is removed from). "Ratio" is that of what is left to the same
files before: files that are left out whole are counted apart, and not in it.

| SM | in MB | before | of that left out whole | after | ratio |
|---|---|---|---|---|---|
"""
_WAYS = {"files": "files", "gzip": "gzip", "zstd": "zstd -3, to compare"}


def _mb(size: float) -> str:
    return f"{size / 1e6:.1f}" if size < 1e8 else f"{size / 1e6:.0f}"


def _cell(proofs) -> str:
    return " / ".join(_mb(proof) for proof in proofs)


def head(day: str, vllm: str, torch: str) -> str:
    """What the page begins with: when it was made, and of what."""
    return _HEAD.format(day=day, vllm=vllm, torch=torch)


def head_of(site: Path) -> str:
    """That of a page which is made now, of this site-packages folder."""
    found = {one.name.lower(): one.version for one in metadata.distributions(path=[str(site)])}
    return head(f"{datetime.now(UTC):%d %B %Y}", found["vllm"], found["torch"])


def written(beginning: str, proofs, totals) -> str:
    """Markdown of all proofs, and of the totals by architecture."""
    sms = list(totals)
    arrow = "-> " + " / ".join(map(str, sms))
    by_library = {}
    for proof in proofs:
        by_library.setdefault(proof.library, {})[proof.sm] = proof
    rows = sorted(by_library.items(), key=lambda row: -row[1][sms[0]].size[0])
    text = beginning
    text += f"## Libraries with device code\n\n| library | file | {arrow} | device code | {arrow} | gzip | {arrow} | proven |\n"
    text += "|---|---|---|---|---|---|---|---|\n"
    for library, found in rows:
        one = found[sms[0]]
        if one.device[0]:
            proven = all(not found[sm].failures for sm in sms)
            text += f"| {library} | {_mb(one.size[0])} | {_cell(found[sm].size[1] for sm in sms)} "
            text += f"| {_mb(one.device[0])} | {_cell(found[sm].device[1] for sm in sms)} "
            text += f"| {_mb(one.compressed[0])} | {_cell(found[sm].compressed[1] for sm in sms)} "
            text += f"| {'yes' if proven else 'NO'} |\n"
    text += "\n## Libraries with debug sections only, of 1 MB and more\n\n| library | file | after | gzip | after | proven |\n|---|---|---|---|---|---|\n"
    for library, found in rows:
        one = found[sms[0]]
        if not one.device[0] and one.size[0] - one.size[1] >= 1_000_000:
            proven = all(not found[sm].failures for sm in sms)
            text += f"| {library} | {_mb(one.size[0])} | {_mb(one.size[1])} | {_mb(one.compressed[0])} "
            text += f"| {_mb(one.compressed[1])} | {'yes' if proven else 'NO'} |\n"
    text += _LAYER
    for sm, total in totals.items():
        for way, (before, apart, after) in total.sizes.items():
            text += f"| {sm} | {_WAYS[way]} | {_mb(before)} | {_mb(apart)} | {_mb(after)} "
            text += f"| {after / (before - apart):.3f} |\n"
    for sms_alike, left_out in _grouped(totals):
        text += f"\nLeft out whole for {sms_alike}:\n\n"
        text += "".join(
            f"- {path} ({_mb(size)} MB)\n" for path, size in left_out.items() if size >= 1_000_000
        )
    loading = Counter(_reason(proof.loading) for proof in proofs if proof.sm == sms[0] and proof.device[0])
    text += "\nLoading the libraries with device code on a machine without a GPU, alike before and after:\n\n"
    text += "".join(f"- {count}: {reason}\n" for reason, count in loading.most_common())
    return text + COMMAND


def _grouped(totals) -> list[tuple[str, dict[str, int]]]:
    """What is left out, and for which architectures alike."""
    groups = {}
    for sm, total in totals.items():
        groups.setdefault(tuple(total.left_out.items()), []).append(str(sm))
    return [(", ".join(sms), dict(left_out)) for left_out, sms in groups.items() if left_out]


def _reason(loading: str) -> str:
    return loading.split(": cannot open", maxsplit=1)[0] + (
        " is not there" if ": cannot open" in loading else ""
    )
