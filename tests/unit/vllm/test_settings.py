"""Which engine arguments a directory stands for."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from runner.engines.vllm.settings import engine_arguments, known_to
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
        max_model_len=512,
        tensor_parallel_size=2,
        dtype="float16",
        quantization=None,
        engine_args={"max_num_seqs": 64},
    )
    assert engine_arguments(directory) == {
        "model": str(directory / "engine"),
        "skip_tokenizer_init": True,
        "language_model_only": True,
        "gdn_prefill_backend": "triton",
        "structured_outputs_config": {"enable_in_reasoning": True},
        "max_model_len": 512,
        "tensor_parallel_size": 2,
        "dtype": "float16",
        "max_num_seqs": 64,
    }


def test_reasoning_is_held_to_a_structure_unless_the_config_says_otherwise(directory):
    for given, enabled in (
        ({"disable_any_whitespace": True}, True),
        ({"enable_in_reasoning": False}, False),
    ):
        write(directory, engine_args={"structured_outputs_config": given})
        structures = engine_arguments(directory)["structured_outputs_config"]
        assert structures == given | {"enable_in_reasoning": enabled}


def test_what_a_newer_vllm_has_dropped_is_left_out(capsys):
    @dataclass
    class EngineArgs:
        model: str = ""
        max_num_seqs: int | None = None

    given = {"model": "m", "max_num_seqs": 8, "calculate_kv_scales": True}
    assert known_to(EngineArgs, given) == {"model": "m", "max_num_seqs": 8}
    assert capsys.readouterr().err == "this vLLM has no calculate_kv_scales: it is left out\n"


@pytest.mark.parametrize("name", ["trust_remote_code", "worker_cls", "model", "logits_processors"])
def test_code_by_name_is_refused(directory, name):
    write(directory, engine_args={name: "x"})
    with pytest.raises(VllmArgumentInvalid, match=f"{name} cannot be set"):
        engine_arguments(directory)


def test_code_by_name_where_the_operator_allows_it(directory, monkeypatch):
    monkeypatch.setenv("ALLOW_MODEL_CODE", "true")
    write(directory, engine_args={"trust_remote_code": True})
    assert engine_arguments(directory)["trust_remote_code"] is True


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"max_num_seq": 8}, r"there is no max_num_seq \(did you mean max_num_seqs\?\)"),
        ({"max_num_seqs": -1}, "max_num_seqs must be a whole number of at least 1"),
        ({"compilation_config": {"inductor_passes": {}}}, "there is no compilation_config.inductor_passes"),
    ],
)
def test_arguments_are_held_against_the_table(directory, arguments, told):
    write(directory, engine_args=arguments)
    with pytest.raises(VllmArgumentInvalid, match=told):
        engine_arguments(directory)


def test_what_earlier_versions_took_is_left_out_with_a_warning(directory, capsys):
    write(directory, engine_args={"swap_space": 4, "disable_log_requests": True, "seed": 1})
    assert engine_arguments(directory) == {
        "model": str(directory / "engine"),
        "skip_tokenizer_init": True,
        "language_model_only": True,
        "gdn_prefill_backend": "triton",
        "structured_outputs_config": {"enable_in_reasoning": True},
        "seed": 1,
    }
    told = capsys.readouterr().err.splitlines()
    assert told[0].endswith("no longer has swap_space: it is left out; write kv_offloading_size in its place")
    assert told[1].endswith("no longer has disable_log_requests: it is left out")


def test_a_model_that_drafts_has_to_be_there(directory):
    write(directory, speculative_config={"model": "someone/draft", "revision": "v1"})
    with pytest.raises(VllmModelIncomplete, match="draft"):
        engine_arguments(directory)
    (directory / "draft").mkdir()
    (directory / "draft/config.json").write_text("{}")
    assert engine_arguments(directory)["speculative_config"] == {"model": str(directory / "draft")}


def test_speculation_is_held_against_the_table(directory):
    write(directory, speculative_config={"method": "custom_class"})
    with pytest.raises(VllmArgumentInvalid, match=r"speculative_config.method must be one of"):
        engine_arguments(directory)


@pytest.mark.parametrize(
    ("config", "error"),
    [
        ("[]", VllmModelIncomplete),
        ("{", VllmModelIncomplete),
        ('{"engine_args": [1]}', VllmArgumentInvalid),
    ],
)
def test_a_config_that_is_none_is_refused(directory, config, error):
    (directory / "config.json").write_text(config)
    with pytest.raises(error):
        engine_arguments(directory)


def test_a_directory_without_a_model_is_refused(tmp_path):
    with pytest.raises(VllmModelIncomplete):
        engine_arguments(tmp_path)
