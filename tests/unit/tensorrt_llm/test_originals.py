"""Every build config of the original repositories, transcribed into originals/, becomes these commands.

A line that is indented deeper goes on with the command before it.
"""

from pathlib import Path

import pytest

from builder.check.source import check_source
from tests.unit.tensorrt_llm.commands import lines, warnings

FOLDER = Path(__file__).parent / "originals"
OFFICIAL = "official-model"

COMMANDS = {
    "gpt-medium-build-config": """
        models/core/gpt/convert_checkpoint.py --model_dir model --output_dir c-model/gpt2/1-gpu --tp_size 1
            --dtype float16
        trtllm-build --checkpoint_dir c-model/gpt2/1-gpu --output_dir engine_outputs --gpt_attention_plugin
            float16 --kv_cache_type paged --use_paged_context_fmha enable --context_fmha enable --gemm_plugin
            float16 --remove_input_padding enable
    """,
    "llama-2-13b-chat-1gpu": """
        models/core/llama/convert_checkpoint.py --model_dir model --output_dir
            c-model/meta-llama/Llama-2-13b-chat-hf
        trtllm-build --checkpoint_dir c-model/meta-llama/Llama-2-13b-chat-hf --output_dir engine_outputs
            --remove_input_padding enable --context_fmha enable --gpt_attention_plugin float16 --gemm_plugin
            float16 --paged_kv_cache enable --workers 1
    """,
    "llama-2-13b-chat-build-py": """
        models/core/llama/convert_checkpoint.py --model_dir model --output_dir checkpoint --dtype float16
        trtllm-build --checkpoint_dir checkpoint --output_dir engine_outputs --gpt_attention_plugin float16
            --kv_cache_type paged --gemm_plugin float16 --remove_input_padding enable --context_fmha enable
            --max_batch_size 1 --max_input_len 500 --max_seq_len 1000
    """,
    "llama-2-13b-chat-int8-2gpu": """
        models/core/llama/convert_checkpoint.py --model_dir model --output_dir
            c-model/meta-llama/Llama-2-13b-chat-hf/int8/2-gpu --tp_size 2 --dtype float16 --use_weight_only
            --weight_only_precision int8
        trtllm-build --checkpoint_dir c-model/meta-llama/Llama-2-13b-chat-hf/int8/2-gpu --output_dir
            engine_outputs --remove_input_padding enable --context_fmha enable --gpt_attention_plugin float16
            --gemm_plugin float16 --paged_kv_cache enable --workers 4 --max_batch_size 64 --max_input_len 4096
            --max_seq_len 8192 --use_paged_context_fmha enable --max_num_tokens 54474
    """,
    "llama-2-13b-chat-sq-1gpu": """
        models/core/llama/convert_checkpoint.py --model_dir model --output_dir
            c-model/meta-llama/Llama-2-13b-chat-hf/sq/1-gpu
        trtllm-build --checkpoint_dir c-model/meta-llama/Llama-2-13b-chat-hf/sq/1-gpu --output_dir
            engine_outputs --remove_input_padding enable --context_fmha enable --gpt_attention_plugin float16
            --paged_kv_cache enable --workers 4 --max_batch_size 64 --max_input_len 4096 --max_seq_len 8192
            --use_paged_context_fmha enable --max_num_tokens 54474
    """,
    "llama-2-70b-4gpu": """
        models/core/llama/convert_checkpoint.py --model_dir model --output_dir
            c-model/meta-llama/Llama-2-70b-hf --tp_size 4 --dtype float16 --load_by_shard
        trtllm-build --checkpoint_dir c-model/meta-llama/Llama-2-70b-hf --output_dir engine_outputs
            --remove_input_padding enable --context_fmha enable --gpt_attention_plugin float16 --gemm_plugin
            float16 --paged_kv_cache enable --workers 2 --max_batch_size 64 --max_input_len 1024 --max_seq_len
            1536
    """,
    "llama-2-7b-chat-1gpu": """
        models/core/llama/convert_checkpoint.py --model_dir model --output_dir
            c-model/meta-llama/Llama-2-7b-chat-hf --tp_size 1 --dtype float16 --load_by_shard
        trtllm-build --checkpoint_dir c-model/meta-llama/Llama-2-7b-chat-hf --output_dir engine_outputs
            --remove_input_padding enable --context_fmha enable --gpt_attention_plugin float16 --gemm_plugin
            float16 --paged_kv_cache enable --workers 1 --max_batch_size 8
    """,
    "llama-2-7b-chat-int8-1gpu": """
        models/core/llama/convert_checkpoint.py --model_dir model --output_dir
            c-model/meta-llama/Llama-2-7b-chat-hf/int8/1-gpu --tp_size 1 --dtype float16 --use_weight_only
            --weight_only_precision int8
        trtllm-build --checkpoint_dir c-model/meta-llama/Llama-2-7b-chat-hf/int8/1-gpu --output_dir
            engine_outputs --remove_input_padding enable --context_fmha enable --gpt_attention_plugin float16
            --gemm_plugin float16 --paged_kv_cache enable --workers 1 --max_batch_size 64
    """,
    "starcoder": """
        models/core/gpt/convert_checkpoint.py --model_dir model --output_dir c-model/starcoder/1-gpu
            --tp_size 1 --dtype float16 --workers 1 --smoothquant 0.5 --int8_kv_cache
        trtllm-build --checkpoint_dir c-model/starcoder/1-gpu --output_dir engine_outputs --gemm_plugin
            float16 --gpt_attention_plugin auto --kv_cache_type paged --remove_input_padding enable
    """,
    "tiny-gpt2": """
        models/core/gpt/convert_checkpoint.py --model_dir model --output_dir c-model/gpt2/1-gpu --tp_size 1
            --dtype float16
        trtllm-build --checkpoint_dir c-model/gpt2/1-gpu --output_dir engine_outputs --gpt_attention_plugin
            auto --remove_input_padding enable
    """,
}

WARNINGS = {
    "gpt-medium-build-config": "E3022 E3022 E3015 E3015 E3015",
    "llama-2-13b-chat-1gpu": "E3027 E3016",
    "llama-2-13b-chat-build-py": "E3022 E3025 E3027 E3015 E3015 E3014 E3015",
    "llama-2-13b-chat-int8-2gpu": "E3016 E3014 E3015",
    "llama-2-13b-chat-sq-1gpu": "E3027 E3016 E3014",
    "llama-2-70b-4gpu": "E3014 E3016 E3014",
    "llama-2-7b-chat-1gpu": "E3014 E3016",
    "llama-2-7b-chat-int8-1gpu": "E3016",
    "starcoder": "E3022 E3022 E3015 E3009",
    "tiny-gpt2": "E3022 E3022",
}


def unfolded(text: str) -> list[str]:
    return text.strip().replace("\n            ", " ").split("\n        ")


def test_every_original_is_here():
    assert {path.stem for path in FOLDER.glob("*.yaml")} == {*COMMANDS, OFFICIAL}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands(name):
    assert lines((FOLDER / f"{name}.yaml").read_text()) == unfolded(COMMANDS[name])


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_outdated_is_said(name):
    assert [code for code, _ in warnings((FOLDER / f"{name}.yaml").read_text())] == WARNINGS[name].split()


@pytest.mark.parametrize("named", [str, Path.as_uri])
def test_the_official_config_leads_to_its_build_config(named, tmp_path):
    folder = tmp_path / "models/mistral-7b-instruct-v0.2"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text((FOLDER / f"{OFFICIAL}.yaml").read_text())
    (folder / "build_config.yaml").write_text((FOLDER / "llama-2-7b-chat-1gpu.yaml").read_text())
    report = check_source(named(folder / "config.yaml"))
    assert [call.step for call in report.calls] == ["convert_to_ft", "build"]
    section = report.build_config().instantiate
    assert section is not None
    assert section.prompt_template == "<s>[INST] {system_prompt} {prompt} [/INST]"
