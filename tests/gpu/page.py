"""The page of measured sizes."""

from __future__ import annotations

from collections import Counter

_HEAD = """# What pruning saves, library by library

Made by the command at the end; do not edit. MB are 10^6 bytes. "zstd" is `zstd -3` of each file, and of a tar of
everything for the last two tables. How pruning works: [pruning.md](pruning.md).

"""
_COMMAND = """
## How this was made

```console
$ python3.12 -m venv env && env/bin/pip install --no-deps --require-hashes -r requirements/engine-vllm.txt
$ pip install --target cuobjdump nvidia-cuda-cuobjdump
$ python -m tests.gpu.prove_libraries --site env/lib/python3.12/site-packages --python env/bin/python \\
      --cuobjdump cuobjdump/nvidia/cu13/bin/cuobjdump --sm 80 86 90 --page docs/pruning-libraries.md
```

The same command proves that nothing else changed; it fails when a library is not proven.
"""


def _mb(size: float) -> str:
    return f"{size / 1e6:.1f}" if size < 1e8 else f"{size / 1e6:.0f}"


def _cell(proofs) -> str:
    return " / ".join(_mb(proof) for proof in proofs)


def written(proofs, totals) -> str:
    """Markdown of all proofs, and of the totals by architecture."""
    sms = list(totals)
    arrow = "-> " + " / ".join(map(str, sms))
    by_library = {}
    for proof in proofs:
        by_library.setdefault(proof.library, {})[proof.sm] = proof
    rows = sorted(by_library.items(), key=lambda row: -row[1][sms[0]].size[0])
    text = _HEAD
    text += f"## Libraries with device code\n\n| library | file | {arrow} | device code | {arrow} | zstd | {arrow} | proven |\n"
    text += "|---|---|---|---|---|---|---|---|\n"
    for library, found in rows:
        one = found[sms[0]]
        if one.device[0]:
            proven = all(not found[sm].failures for sm in sms)
            text += f"| {library} | {_mb(one.size[0])} | {_cell(found[sm].size[1] for sm in sms)} "
            text += f"| {_mb(one.device[0])} | {_cell(found[sm].device[1] for sm in sms)} "
            text += f"| {_mb(one.compressed[0])} | {_cell(found[sm].compressed[1] for sm in sms)} "
            text += f"| {'yes' if proven else 'NO'} |\n"
    text += "\n## Libraries with debug sections only, of 1 MB and more\n\n| library | file | after | zstd | after | proven |\n|---|---|---|---|---|---|\n"
    for library, found in rows:
        one = found[sms[0]]
        if not one.device[0] and one.size[0] - one.size[1] >= 1_000_000:
            proven = all(not found[sm].failures for sm in sms)
            text += f"| {library} | {_mb(one.size[0])} | {_mb(one.size[1])} | {_mb(one.compressed[0])} "
            text += f"| {_mb(one.compressed[1])} | {'yes' if proven else 'NO'} |\n"
    text += "\n## The whole environment\n\n| SM | files, MB | after | tar, zstd -3 | after | ratio |\n|---|---|---|---|---|---|\n"
    for sm, total in totals.items():
        before, after = total["layer_before"], total.get("layer_after", 0)
        text += f"| {sm} | {_mb(total['size_before'])} | {_mb(total['size_after'])} | {_mb(before)} | {_mb(after)} "
        text += f"| {after / before:.3f} |\n" if before else "| |\n"
    loading = Counter(_reason(proof.loading) for proof in proofs if proof.sm == sms[0] and proof.device[0])
    text += "\nNo file is left out whole. Loading the libraries with device code on a machine without a GPU, alike before and after:\n\n"
    text += "".join(f"- {count}: {reason}\n" for reason, count in loading.most_common())
    return text + _COMMAND


def _reason(loading: str) -> str:
    return loading.split(": cannot open", maxsplit=1)[0] + (
        " is not there" if ": cannot open" in loading else ""
    )
