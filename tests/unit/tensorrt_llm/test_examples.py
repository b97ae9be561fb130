"""Every config for TensorRT-LLM in examples/ is clean, and becomes these commands.

A line that is indented deeper goes on with the command before it.
"""

import pytest

from builder.plan import make_plan
from shared.config import load_config
from shared.layout import PROJECT_ROOT
from tests.unit.tensorrt_llm.commands import lines, warnings

FOLDER = PROJECT_ROOT / "examples"

COMMANDS = {
    "llama/llama-2-70b-4gpu": """
        quantization/quantize.py --model_dir model --dtype float16 --qformat full_prec --tp_size 4 --pp_size
            1 --output_dir checkpoint
        trtllm-build --checkpoint_dir checkpoint --output_dir engine --max_batch_size 64 --max_num_tokens
            8192 --max_seq_len 4096 --gemm_plugin auto --workers 4
    """,
    "llama/llama-2-7b-chat-int8-1gpu": """
        quantization/quantize.py --model_dir model --dtype float16 --qformat int8_wo --tp_size 1 --pp_size 1
            --output_dir checkpoint
        trtllm-build --checkpoint_dir checkpoint --output_dir engine --max_batch_size 64 --max_num_tokens
            8192 --max_seq_len 4096 --gemm_plugin auto
    """,
    "llama/llama-2-7b-chat-1gpu": """
        quantization/quantize.py --model_dir model --dtype float16 --qformat full_prec --tp_size 1 --pp_size
            1 --output_dir checkpoint
        trtllm-build --checkpoint_dir checkpoint --output_dir engine --max_batch_size 64 --max_num_tokens
            8192 --max_seq_len 4096 --gemm_plugin auto
    """,
    "llama/llama-3.1-8b-awq": """
        quantization/quantize.py --model_dir model --output_dir checkpoint --dtype bfloat16 --qformat
            int4_awq --awq_block_size 128
        trtllm-build --checkpoint_dir checkpoint --output_dir engine --gpt_attention_plugin bfloat16
            --gemm_plugin bfloat16 --max_batch_size 64 --max_seq_len 8192
    """,
    "mistral/mistral-7b-instruct": """
        quantization/quantize.py --model_dir model --dtype bfloat16 --qformat full_prec --tp_size 1
            --pp_size 1 --output_dir checkpoint
        trtllm-build --checkpoint_dir checkpoint --output_dir engine --max_batch_size 64 --max_num_tokens
            8192 --max_seq_len 8192 --gemm_plugin auto
    """,
    "gpt/starcoder": """
        models/core/gpt/convert_checkpoint.py --model_dir model --output_dir checkpoint --gpt_variant
            starcoder --dtype float16 --smoothquant 0.5 --int8_kv_cache
        trtllm-build --checkpoint_dir checkpoint --output_dir engine --gemm_plugin float16 --max_batch_size
            64
    """,
    "gpt/config": """
        models/core/gpt/convert_checkpoint.py --model_dir model --output_dir checkpoint --dtype float16
        trtllm-build --checkpoint_dir checkpoint --output_dir engine --max_batch_size 8 --max_num_tokens
            1024
    """,
}


def unfolded(text: str) -> list[str]:
    return text.strip().replace("\n            ", " ").split("\n        ")


def test_every_example_is_here():
    found = {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.*")}
    assert {path for path in found if not path.startswith("vllm/")} == {f"{name}.yaml" for name in COMMANDS}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands(name):
    assert lines((FOLDER / f"{name}.yaml").read_text()) == unfolded(COMMANDS[name])


@pytest.mark.parametrize("name", COMMANDS)
def test_no_warnings(name):
    assert warnings((FOLDER / f"{name}.yaml").read_text()) == []


@pytest.mark.parametrize("name", COMMANDS)
def test_plan(name):
    config = load_config((FOLDER / f"{name}.yaml").read_text(), name)
    first, *_, last = [step.name for step in make_plan(config).steps]
    assert (first, last) == ("download", "package")
