"""What vLLM's core does with structures: whether it refuses one with costly masks, before and after
`limit_grammars`, and whether each of many that are compiled at once is the one that was asked for.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

from llguidance import LLTokenizer
from vllm.v1.structured_output.backend_guidance import GuidanceBackend
from vllm.v1.structured_output.backend_types import StructuredOutputOptions

from runner.engines.vllm.executors import limit_grammars

TOKENIZER = LLTokenizer("demo/model/tokenizer.json")

BACKEND = SimpleNamespace(
    ll_tokenizer=TOKENIZER,
    vocab_size=TOKENIZER.vocab_size,
    disable_any_whitespace=True,
    disable_additional_properties=False,
)


def compiled(pattern: str):
    return GuidanceBackend.compile_grammar(BACKEND, StructuredOutputOptions.REGEX, pattern)


def is_refused() -> bool:
    grammar = compiled("(a{1000}){400}")
    grammar.ll_matcher.compute_bitmask()
    grammar.ll_matcher.consume_token(TOKENIZER.tokenize_str("a")[-1])
    return bool(grammar.ll_matcher.is_error())


def is_held_to(length: int) -> bool:
    matcher = compiled(f"a{{{length}}}").ll_matcher
    one = TOKENIZER.tokenize_str("a")
    return all(matcher.consume_tokens(one) for _ in range(length)) and matcher.is_stopped()


before = is_refused()
limit_grammars()
limited = is_refused()
sys.setswitchinterval(1e-6)
with ThreadPoolExecutor(16) as pool:  # as in the core, on a machine with 32 cores
    own = all(pool.map(is_held_to, [*range(1, 30)] * 10))
Path(sys.argv[1]).write_text(json.dumps({"before": before, "limited": limited, "own": own}))
