"""Greedy tokens of vLLM's own LLM class, written as JSON: `reference.py RESULT`, in vLLM's environment."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tests.vllm.lora import ADAPTERS, COMPARED, write_adapter
from tests.vllm.model import ARGUMENTS, GREEDY_TOKENS, MAX_SEQ_LEN, MODEL, PROMPTS

os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_WORKER_MULTIPROC_METHOD": "spawn"}


def main() -> None:
    from vllm import LLM, SamplingParams
    from vllm.lora.request import LoRARequest

    result = Path(sys.argv[1])
    llm = LLM(
        model=str(MODEL),
        skip_tokenizer_init=True,
        max_model_len=MAX_SEQ_LEN,
        **ARGUMENTS,
    )

    def greedy(some: list[list[int]], lora: LoRARequest | None) -> list[list[int]]:
        outputs = llm.generate(
            [{"prompt_token_ids": prompt} for prompt in some],
            SamplingParams(temperature=0, max_tokens=GREEDY_TOKENS, detokenize=False, ignore_eos=True),
            use_tqdm=False,
            lora_request=lora,
        )
        return [list(output.outputs[0].token_ids) for output in outputs]

    written = {"none": greedy(PROMPTS, None)}
    for number, name in enumerate(COMPARED, start=1):
        adapter = write_adapter(result.parent / name, ADAPTERS[name])
        written[name] = greedy(PROMPTS[:10], LoRARequest(name, number, str(adapter)))
    result.write_text(json.dumps(written))


if __name__ == "__main__":
    main()
