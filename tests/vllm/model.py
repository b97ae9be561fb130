"""The model of these tests: that of the demo. Read in the environment of vLLM too, which has no pytest."""

from __future__ import annotations

import random

from shared.layout import PROJECT_ROOT

MODEL = PROJECT_ROOT / "demo/model"
MAX_AT_ONCE = 64
ARGUMENTS = {
    "enforce_eager": True,
    "kv_cache_memory_bytes": 256 << 20,
    "enable_lora": True,
    "max_loras": 2,
    "max_cpu_loras": 2,
    "max_lora_rank": 8,
    "scheduling_policy": "priority",
    "max_num_seqs": MAX_AT_ONCE,
}
MAX_SEQ_LEN = 256
VOCABULARY = 1024
GREEDY_TOKENS = 24

_CHANCE = random.Random(1)
# As token ids.
PROMPTS = [[_CHANCE.randrange(3, VOCABULARY) for _ in range(_CHANCE.randrange(1, 60))] for _ in range(50)]
