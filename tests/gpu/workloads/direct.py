"""Plays loads against vLLM's AsyncLLM without a server: `python -m tests.gpu.workloads.direct`, in vLLM's environment.

Prints a JSON object for each load. What a server does besides, from templates to text, is not done here.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from typing import Any

from tests.gpu.serving.tokenizer import TOKENIZER
from tests.gpu.workloads.figures import figures_of
from tests.gpu.workloads.http_client import Played
from tests.gpu.workloads.loads import SCHEMA, Load, Request, all_loads, system_prompt, text_of


async def _play(llm: Any, load: Load, tokenizer: Any) -> list[Played]:
    start = time.monotonic() + 0.2

    async def one(request: Request, prompt: list[int], played: Played, name: str) -> list[int]:
        await asyncio.sleep(max(0, played.due - time.monotonic()))
        tokens: list[int] = []
        async for output in llm.generate({"prompt_token_ids": prompt}, _parameters(request), name):
            if played.first is None:
                played.first = time.monotonic()
            tokens += output.outputs[0].token_ids
        played.ended, played.tokens, played.status = time.monotonic(), len(tokens), 200
        return tokens

    async def user(number: int, requests: tuple[Request, ...]) -> list[Played]:
        prompt: list[int] = tokenizer.encode(_system()).ids if load.is_chat else []
        all_played = []
        due = start
        for turn, request in enumerate(requests, 1):
            due = max(due, start + request.at)
            played = Played(turn, due)
            if load.is_chat:
                text = f"[INST]{text_of(request.words).strip()}[/INST]"
                prompt = prompt + tokenizer.encode(text, add_special_tokens=False).ids
            else:
                prompt = list(request.words)
            prompt = prompt + await one(request, prompt, played, f"{load.name}-{number}-{turn}")
            all_played.append(played)
            due = time.monotonic()
        return all_played

    users = await asyncio.gather(*(user(number, requests) for number, requests in enumerate(load.users)))
    return [played for one_user in users for played in one_user]


def _system() -> str:
    return f"[SYSTEM_PROMPT]{system_prompt()}[/SYSTEM_PROMPT]"


def _parameters(request: Request) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    return SamplingParams(
        temperature=1.0,
        max_tokens=request.output_tokens,
        ignore_eos=not request.structured,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
        structured_outputs=StructuredOutputsParams(json=SCHEMA) if request.structured else None,
    )


async def _main(options: argparse.Namespace) -> None:
    from tokenizers import Tokenizer
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.usage.usage_lib import UsageContext
    from vllm.utils.gc_utils import freeze_gc_heap
    from vllm.v1.engine.async_llm import AsyncLLM

    started = time.monotonic()
    arguments = AsyncEngineArgs(model=options.model, **json.loads(options.arguments))
    llm = AsyncLLM.from_engine_args(arguments, usage_context=UsageContext.OPENAI_API_SERVER)
    freeze_gc_heap()  # as vLLM's server does
    print(json.dumps({"ready": round(time.monotonic() - started, 1)}), flush=True)
    tokenizer = Tokenizer.from_file(str(TOKENIZER / "tokenizer.json"))
    loads = all_loads(options.scale)
    for name in options.loads:
        before = time.monotonic()
        played = await _play(llm, loads[name], tokenizer)
        print(json.dumps({"load": name} | figures_of(played, time.monotonic() - before)), flush=True)
    llm.shutdown()


if __name__ == "__main__":
    # As for the runner's engine (runner/engines/vllm/environment.py): it can use what that one compiled, then.
    os.environ |= {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_PLUGINS": "",
        "VLLM_USE_DEEP_GEMM": "0",
        "VLLM_USE_FLASHINFER_SAMPLER": "0",
    }
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.workloads.direct")
    parser.add_argument("--model", required=True)
    parser.add_argument("--arguments", required=True, help="of the engine, as JSON")
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("loads", nargs="+")
    asyncio.run(_main(parser.parse_args()))
