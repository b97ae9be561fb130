"""Compare the pruned image with the one that has all device code: two runs of this command, one in each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .check import Check, Outcome, Skip
from .generation import greedy_texts

if TYPE_CHECKING:
    from .bench import Bench


def _same_texts(bench: Bench) -> Outcome:
    if bench.other is None:
        raise Skip("run this with --json in the other image, and pass its output here with --against")
    if bench.other["model"] != str(bench.model):
        raise Skip(f"the other run used {bench.other['model']}")
    if not bench.texts:
        greedy_texts(bench, bench.serve())
    return Outcome(repr(bench.other["texts"]), repr(bench.texts))


CHECKS = (
    Check(
        "other image",
        "device code for other GPUs is never used: without it the texts are the same",
        "nix/prune; NVIDIA's fat binary format",
        _same_texts,
    ),
)
