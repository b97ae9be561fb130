"""Greedy tokens of vLLM's own LLM class, written as JSON: `reference.py RESULT`, in vLLM's environment."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tests.vllm.model import ARGUMENTS, GREEDY_TOKENS, MAX_SEQ_LEN, MODEL, PROMPTS

os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_WORKER_MULTIPROC_METHOD": "spawn"}


def main() -> None:
    from vllm import LLM, SamplingParams

    (result,) = sys.argv[1:]
    llm = LLM(
        model=str(MODEL),
        skip_tokenizer_init=True,
        max_model_len=MAX_SEQ_LEN,
        **ARGUMENTS,
    )
    outputs = llm.generate(
        [{"prompt_token_ids": prompt} for prompt in PROMPTS],
        SamplingParams(temperature=0, max_tokens=GREEDY_TOKENS, detokenize=False, ignore_eos=True),
        use_tqdm=False,
    )
    Path(result).write_text(json.dumps([list(output.outputs[0].token_ids) for output in outputs]))


if __name__ == "__main__":
    main()
