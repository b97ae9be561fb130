"""vLLM's own engine without a server: prints a JSON object for each burst of streams, and its greedy tokens.

The first object is of the run that warms it up.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from typing import Any

from tests.gpu.serving.greedy import GREEDY_TOKENS, greedy_prompts
from tests.gpu.serving.model import OUTPUT_TOKENS, Burst, prompt_ids, summary
from tests.gpu.serving.tokenizer import TOKENIZER


async def _one(llm: Any, number: str, prompt: list[int], gaps: list[float]) -> float:
    """Seconds until the first token; those between the outputs after it go to `gaps`."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    parameters = SamplingParams(
        temperature=1.0,
        max_tokens=OUTPUT_TOKENS,
        ignore_eos=True,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
    )
    sent = time.monotonic()
    first, last, count = 0.0, 0.0, 0
    async for output in llm.generate({"prompt_token_ids": prompt}, parameters, number):
        now = time.monotonic()
        if count == 0:
            first = now
        else:
            gaps.append(now - last)
        last = now
        count += len(output.outputs[0].token_ids)
    if count != OUTPUT_TOKENS:
        raise RuntimeError(f"a stream had {count} tokens")
    return first - sent


async def _greedy(llm: Any) -> list[str]:
    from tokenizers import Tokenizer
    from vllm import SamplingParams

    tokenizer = Tokenizer.from_file(str(TOKENIZER / "tokenizer.json"))
    parameters = SamplingParams(temperature=0, max_tokens=GREEDY_TOKENS, ignore_eos=True, detokenize=False)
    texts = []
    for number, prompt in enumerate(greedy_prompts()):
        async for output in llm.generate({"prompt_token_ids": prompt}, parameters, f"greedy-{number}"):
            told = output
        texts.append(tokenizer.decode(told.outputs[0].token_ids))
    return texts


async def _main(options: argparse.Namespace) -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.usage.usage_lib import UsageContext
    from vllm.utils.gc_utils import freeze_gc_heap
    from vllm.v1.engine.async_llm import AsyncLLM

    arguments = AsyncEngineArgs(
        model=options.model, skip_tokenizer_init=True, **json.loads(options.arguments)
    )
    llm = AsyncLLM.from_engine_args(arguments, usage_context=UsageContext.OPENAI_API_SERVER)
    freeze_gc_heap()  # as vLLM's server does
    bursts = [Burst(*one) for one in json.loads(options.bursts)]
    for run, (count, prompt_tokens) in enumerate([Burst(8), *bursts]):  # the first is to warm up
        started = time.monotonic()
        gaps: list[float] = []
        prompt = prompt_ids(prompt_tokens)
        first = await asyncio.gather(*(_one(llm, f"{run}-{number}", prompt, gaps) for number in range(count)))
        seconds = time.monotonic() - started
        told = {
            "streams": count,
            "prompt_tokens": prompt_tokens,
            "tokens_per_second": count * OUTPUT_TOKENS / seconds,
            "time_to_first_token": summary(first),
            "gap": summary(gaps),
        }
        print(json.dumps(told), flush=True)
    if options.greedy:
        print(json.dumps({"greedy": await _greedy(llm)}), flush=True)
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
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.serving.direct")
    parser.add_argument("--model", required=True)
    parser.add_argument("--arguments", required=True, help="of the engine, as JSON")
    parser.add_argument("--bursts", default="[]", help="streams and prompt tokens of each, as JSON")
    parser.add_argument("--greedy", action="store_true", help="also what it writes after fifty prompts")
    asyncio.run(_main(parser.parse_args()))
