import pytest

from builder.engines.tensorrt_llm.planning import commands
from builder.sources.model import model_of
from shared.config import load_config
from shared.errors import ConfigCheckFailed
from tests.unit.tensorrt_llm.commands import lines

HEAD = "engine: tensorrt_llm\nmodel: a/b\n"


def test_nothing_but_a_model():
    assert lines(HEAD) == [
        (
            "quantization/quantize.py --model_dir model --dtype auto --qformat full_prec --tp_size 1 --pp_size 1"
            " --output_dir checkpoint"
        ),
        (
            "trtllm-build --checkpoint_dir checkpoint --output_dir engine --max_batch_size 2048"
            " --max_num_tokens 8192 --gemm_plugin auto"
        ),
    ]


def test_everything():
    text = HEAD + (
        "dtype: bfloat16\nquantization: fp8\nmax_batch_size: 16\nmax_input_len: 100\nmax_seq_len: 200\n"
        "max_num_tokens: 300\ntensor_parallel_size: 4\npipeline_parallel_size: 2\n"
    )
    assert lines(text) == [
        (
            "quantization/quantize.py --model_dir model --dtype bfloat16 --qformat fp8 --tp_size 4 --pp_size 2"
            " --output_dir checkpoint"
        ),
        (
            "trtllm-build --checkpoint_dir checkpoint --output_dir engine --max_batch_size 16"
            " --max_num_tokens 300 --max_input_len 100 --max_seq_len 200 --workers 8"
        ),
    ]


@pytest.mark.parametrize(
    ("text", "model"),
    [
        (HEAD + "revision: v1", ("a/b", "v1", ("safetensors", "bin"))),
        ("model_id: a/b\nrevision: v1\nbuild: {output_dir: e}", ("a/b", "v1", ("safetensors", "bin"))),
        ("model_id: a/b\nweight_format: bin\nbuild: {output_dir: e}", ("a/b", None, ("bin", "safetensors"))),
        (
            "model_id: a/b\nmodel_tar_url: https://a/m.tar\nbuild: {output_dir: e}",
            ("https://a/m.tar", None, ("safetensors", "bin")),
        ),
    ],
)
def test_the_model_to_download(text, model):
    found = model_of(load_config(text, "c"))
    assert found
    assert found[1:] == model


def test_a_config_that_cannot_be_built_has_no_commands():
    config = load_config("model_id: a/b\nbuild: {output_dir: ../e, executable: sh}", "c")
    with pytest.raises(ConfigCheckFailed, match=r"E3010 .* build\.executable: E3020"):
        commands(config)
