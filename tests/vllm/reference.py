"""Greedy tokens of vLLM's own LLM class, printed as JSON: `reference.py MODEL PROMPTS`, in vLLM's environment."""

from __future__ import annotations

import json
import os
import sys

os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_WORKER_MULTIPROC_METHOD": "spawn"}


def main() -> None:
    from vllm import LLM, SamplingParams

    model, file = sys.argv[1:]
    with open(file) as asked:  # noqa: PTH123 - as small as can be
        prompts = json.load(asked)
    llm = LLM(
        model=model,
        skip_tokenizer_init=True,
        enforce_eager=True,
        max_model_len=256,
        kv_cache_memory_bytes=256 << 20,
        enable_prefix_caching=False,
    )
    outputs = llm.generate(
        [{"prompt_token_ids": prompt} for prompt in prompts],
        SamplingParams(temperature=0, max_tokens=24, detokenize=False, ignore_eos=True),
        use_tqdm=False,
    )
    print(json.dumps([list(output.outputs[0].token_ids) for output in outputs]))


if __name__ == "__main__":
    main()
