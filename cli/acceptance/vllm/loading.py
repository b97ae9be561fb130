"""Models that are loaded without weights."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from cli.acceptance.bench import replace
from cli.acceptance.check import Check, Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from .bench import VLLMBench

_TOKENS = 16
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt")


def _dummy(bench: VLLMBench) -> Outcome:
    def change(engine: Path) -> None:
        config = json.loads((engine / "config.json").read_bytes())
        config["engine_args"] |= {"load_format": "dummy"}
        replace(engine / "config.json", json.dumps(config).encode())
        for pattern in _WEIGHTS:
            for file in (engine / "engine").glob(pattern):
                file.unlink()

    server = bench.serve(bench.variant("dummy", bench.engine, change))
    tokens = server.complete([1, 2, 3], _TOKENS, ignore_eos=True).tokens
    return Outcome(f"{_TOKENS} tokens", f"{tokens} tokens")


CHECKS = (
    Check(
        "dummy weights",
        "with load_format dummy a config.json is enough, and no tokenizer is read",
        "vllm/model_executor/model_loader/dummy_loader.py; skip_tokenizer_init of vllm/engine/arg_utils.py",
        _dummy,
    ),
)
