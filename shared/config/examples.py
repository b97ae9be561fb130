"""A config for each engine: what the documentation shows, and what `cog-triton init` begins with."""

from __future__ import annotations

EXAMPLES = {
    "ctranslate2": """\
engine: ctranslate2
model: HuggingFaceTB/SmolLM2-135M-Instruct
revision: main
quantization: int8
parallel_requests: 4
instantiate:
  prompt_template: |
    <|im_start|>user
    {prompt}<|im_end|>
    <|im_start|>assistant
  stop_sequences: ["<|im_end|>"]
""",
    "mock": """\
engine: mock
tokens_per_second: 50
time_to_first_token: 0.2
""",
    "tensorrt_llm": """\
engine: tensorrt_llm
model: meta-llama/Llama-3.1-8B-Instruct
quantization: fp8
max_batch_size: 64
max_seq_len: 8192
""",
    "vllm": """\
engine: vllm
model: meta-llama/Llama-3.1-8B-Instruct
max_model_len: 8192
gpu: H100
engine_args:
  gpu_memory_utilization: 0.9
""",
}
