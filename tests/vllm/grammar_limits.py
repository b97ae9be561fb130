"""Whether vLLM's core refuses a structure with costly masks, before and after `limit_grammars`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

from llguidance import LLTokenizer
from vllm.v1.structured_output.backend_guidance import GuidanceBackend
from vllm.v1.structured_output.backend_types import StructuredOutputOptions

from runner.engines.vllm.executors import limit_grammars

TOKENIZER = LLTokenizer("demo/model/tokenizer.json")


def is_refused() -> bool:
    backend = SimpleNamespace(
        ll_tokenizer=TOKENIZER,
        vocab_size=TOKENIZER.vocab_size,
        disable_any_whitespace=True,
        disable_additional_properties=False,
    )
    grammar = GuidanceBackend.compile_grammar(backend, StructuredOutputOptions.REGEX, "(a{1000}){400}")
    grammar.ll_matcher.compute_bitmask()
    grammar.ll_matcher.consume_token(TOKENIZER.tokenize_str("a")[-1])
    return bool(grammar.ll_matcher.is_error())


before = is_refused()
limit_grammars()
Path(sys.argv[1]).write_text(json.dumps({"before": before, "limited": is_refused()}))
