"""Have vLLM generate from libraries pruned for the GPU at hand, and compare its tokens with unpruned PyTorch's.

    python3 tests/gpu/vllm_generate.py --scratch DIR [--vllm SITE] [--sm 90] [--cut] [--report FILE]

Needs vLLM 0.26.0 with PyTorch 2.11.0, installed for the Python that runs this, or all but PyTorch in a folder
SITE that may be pruned already. The `torch`, `nvidia` and `triton` folders are copied below DIR and pruned, and so
is vLLM's own. A small Llama with random weights, the same each time, generates greedily for 64 prompts: in a process
with the original libraries, and in one with the pruned ones.

Prints a JSON summary; exits with status 1 when the tokens differ or are not all there, or when a library of PyTorch
or NVIDIA was not loaded from where it should be.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bit_compare import below, own_sm

ROOT = Path(__file__).resolve().parents[2]
REQUESTS, PROMPT, TOKENS = 64, 48, 64
_SECONDS = 200
MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "bfloat16",
}


async def generate(model: Path) -> dict:
    """All requests together; their tokens, and the rate."""
    from vllm import SamplingParams
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    arguments = AsyncEngineArgs(
        model=str(model),
        load_format="dummy",
        skip_tokenizer_init=True,
        dtype="bfloat16",
        max_model_len=512,
        gpu_memory_utilization=0.3,
        enforce_eager=True,
        enable_prefix_caching=False,
        seed=0,
    )
    engine = AsyncLLM.from_engine_args(arguments)
    sampling = SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True, detokenize=False)

    async def one(number: int) -> list[int]:
        prompt = [(7919 * number + 104_729 * at) % 31_000 + 3 for at in range(PROMPT)]
        tokens: list[int] = []
        async for output in engine.generate({"prompt_token_ids": prompt}, sampling, str(number)):
            tokens = list(output.outputs[0].token_ids)
        return tokens

    try:
        await one(REQUESTS)
        started = time.monotonic()
        tokens = await asyncio.gather(*(one(number) for number in range(REQUESTS)))
        seconds = time.monotonic() - started
        libraries = loaded()
    finally:
        engine.shutdown()
    return {
        "tokens": tokens,
        "tokens_per_second": round(REQUESTS * TOKENS / seconds),
        "libraries": libraries,
    }


def loaded() -> list[str]:
    """The shared libraries of this process and of those that it started: vLLM's engine is in one."""
    import psutil

    own = psutil.Process()
    maps = [each for process in (own, *own.children(recursive=True)) for each in process.memory_maps()]
    return sorted({each.path for each in maps if ".so" in each.path})


def run(model: Path, path: list[Path]) -> dict:
    """Generate in a process of its own, with the packages of these folders first."""
    folders = sorted({file.parent for folder in path for file in (folder / "nvidia").rglob("*.so*")})
    environment = {
        **os.environ,
        "PYTHONPATH": ":".join(map(str, path)),
        "LD_LIBRARY_PATH": ":".join([*map(str, folders), os.environ.get("LD_LIBRARY_PATH", "")]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_USE_FLASHINFER_SAMPLER": "0",
        "VLLM_LOGGING_LEVEL": "WARNING",
    }
    command = [sys.executable, __file__, "--generate", str(model)]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        return {"tokens": [], "libraries": [], "ended": f"took more than {_SECONDS} s"}
    last = done.stdout.splitlines()[-1:] or [""]
    if done.returncode or not last[0].startswith("{"):
        return {
            "tokens": [],
            "libraries": [],
            "ended": f"status {done.returncode}: {(done.stdout + done.stderr)[-4000:]}",
        }
    return json.loads(last[0])


def compare(scratch: Path, vllm: Path | None, sm: int, *, cut: bool) -> dict:
    sys.path.insert(0, str(ROOT / "nix"))
    from prune import Outcome, prune_wheel_tree

    model, pruned = scratch / "model", scratch / "vllm-pruned"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(MODEL))
    site = Path(importlib.util.find_spec("torch").submodule_search_locations[0]).resolve().parent
    with ThreadPoolExecutor() as pool:
        original = pool.submit(run, model, [vllm] if vllm else [])
        for name in ("torch", "nvidia", "triton", "vllm"):
            if (site / name).is_dir() and not (name == "vllm" and vllm):
                shutil.copytree(site / name, pruned / name, symlinks=True)
        if vllm:
            shutil.copytree(vllm, pruned, symlinks=True, dirs_exist_ok=True)
        report = prune_wheel_tree(pruned, sm, cut=cut)
        before = original.result()
    after = run(model, [pruned])
    same = sum(one == other for one, other in zip(before["tokens"], after["tokens"], strict=False))
    failures = []
    if [len(tokens) for tokens in after["tokens"]] != [TOKENS] * REQUESTS:
        failures.append("not all tokens were generated")
    if same != REQUESTS:
        failures.append(f"only {same} of {REQUESTS} requests have the same tokens")
    for found, own, other in ((before, site, pruned), (after, pruned, site)):
        foreign = below(other, found["libraries"])
        found["libraries"] = len(below(own, found["libraries"]))
        if foreign or not found["libraries"]:
            failures.append(f"{found['libraries']} libraries of {own}, but {sorted(foreign)}")
    return {
        "sm": sm,
        "libraries_pruned": sum(1 for library in report.libraries if library.outcome is Outcome.PRUNED),
        "bytes_before": sum(library.size_before for library in report.libraries),
        "bytes_after": sum(library.size_after for library in report.libraries),
        "device_bytes": {
            library.path: [sum(library.device_before.values()), sum(library.device_after.values())]
            for library in report.libraries
            if library.has_device_code
        },
        "requests": REQUESTS,
        "same_tokens": same,
        "distinct_tokens": len({token for tokens in after["tokens"] for token in tokens}),
        "original": {key: value for key, value in before.items() if key != "tokens"},
        "pruned": {key: value for key, value in after.items() if key != "tokens"},
        "failures": failures,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scratch", type=Path, help="an existing, empty folder with 16 GB free")
    parser.add_argument(
        "--vllm", type=Path, help="a folder with vLLM and what it needs, if it is not installed"
    )
    parser.add_argument("--sm", type=int, help="default: the GPU's")
    parser.add_argument("--cut", action="store_true", help="cut the removed code out of the files")
    parser.add_argument("--report", type=Path, help="write the summary here too")
    parser.add_argument("--generate", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.generate:
        print(json.dumps(asyncio.run(generate(options.generate))))
        return 0
    if not options.scratch:
        parser.error("--scratch is needed")
    summary = compare(options.scratch.resolve(), options.vllm, options.sm or own_sm(), cut=options.cut)
    text = json.dumps(summary, indent=1)
    if options.report:
        options.report.write_text(text)
    print(text)
    return int(bool(summary["failures"]))


if __name__ == "__main__":
    sys.exit(main())
