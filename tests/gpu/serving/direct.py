"""vLLM's own engine without a server: `direct.py MODEL STREAMS...` prints a JSON object for each number."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from statistics import median
from typing import Any

from tests.gpu.serving.model import ENGINE_ARGUMENTS, OUTPUT_TOKENS, prompt_ids


async def _one(llm: Any, number: str) -> tuple[float, float]:
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
    first, count = 0.0, 0
    async for output in llm.generate({"prompt_token_ids": prompt_ids()}, parameters, number):
        first = first or time.monotonic()
        count += len(output.outputs[0].token_ids)
    if count != OUTPUT_TOKENS:
        raise RuntimeError(f"a stream had {count} tokens")
    return first - sent, time.monotonic() - sent


async def _main(model: str, streams: list[int]) -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.engine.async_llm import AsyncLLM

    arguments = AsyncEngineArgs(model=model, skip_tokenizer_init=True, **ENGINE_ARGUMENTS)
    llm = AsyncLLM.from_engine_args(arguments, usage_context=UsageContext.OPENAI_API_SERVER)
    for run, count in enumerate([8, *streams]):  # the first is to warm up
        started = time.monotonic()
        results = await asyncio.gather(*(_one(llm, f"{run}-{number}") for number in range(count)))
        seconds = time.monotonic() - started
        first = sorted(result[0] for result in results)
        told = {
            "streams": count,
            "tokens_per_second": count * OUTPUT_TOKENS / seconds,
            "time_to_first_token": {"p50": median(first), "p99": first[int(0.99 * (len(first) - 1))]},
        }
        if run:
            print(json.dumps(told), flush=True)
    llm.shutdown()


if __name__ == "__main__":
    os.environ |= {"VLLM_USE_FLASHINFER_SAMPLER": "0", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    asyncio.run(_main(sys.argv[1], [int(count) for count in sys.argv[2:]]))
