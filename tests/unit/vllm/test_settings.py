"""Which engine arguments a directory stands for."""

from __future__ import annotations

import json

import pytest

from runner.engines.vllm.settings import engine_arguments
from shared.errors import VllmArgumentInvalid, VllmModelIncomplete


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine/config.json").write_text("{}")
    (tmp_path / "config.json").write_text('{"engine": "vllm"}')
    return tmp_path


def write(directory, **config):
    (directory / "config.json").write_text(json.dumps({"engine": "vllm", **config}))


def test_our_keys_become_vllms(directory):
    write(
        directory,
        max_seq_len=512,
        tensor_parallel_size=2,
        dtype="float16",
        quantization=None,
        engine_args={"max_num_seqs": 64},
    )
    assert engine_arguments(directory) == {
        "model": str(directory / "engine"),
        "skip_tokenizer_init": True,
        "max_model_len": 512,
        "tensor_parallel_size": 2,
        "dtype": "float16",
        "max_num_seqs": 64,
    }


@pytest.mark.parametrize("name", ["trust_remote_code", "worker_cls", "model", "logits_processors"])
def test_code_by_name_is_refused(directory, name):
    write(directory, engine_args={name: "x"})
    with pytest.raises(VllmArgumentInvalid, match=f"{name} cannot be set"):
        engine_arguments(directory)


@pytest.mark.parametrize("config", ["[]", "{", '{"engine_args": [1]}'])
def test_a_config_that_is_none_is_refused(directory, config):
    (directory / "config.json").write_text(config)
    with pytest.raises(VllmArgumentInvalid):
        engine_arguments(directory)


def test_a_directory_without_a_model_is_refused(tmp_path):
    with pytest.raises(VllmModelIncomplete):
        engine_arguments(tmp_path)
