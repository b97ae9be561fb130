from __future__ import annotations

import json
import os
import re
import subprocess
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from builder.engines.ctranslate2.variables import Variables
from shared.errors import from_text
from shared.layout import PROJECT_ROOT
from tests.unit.ctranslate2.checkpoints import convert, engine_python, write_checkpoint

FILES = ("config.json", "model.bin", "vocabulary.json")


def converted(model, output, quantization="float32"):
    child = convert(model, output, quantization)
    assert child.returncode == 0, child.stderr
    return {name: (output / name).read_bytes() for name in FILES}


def refused(model, output):
    """The code of the error, and its text. Nothing is left behind."""
    child = convert(model, output)
    assert child.returncode == 1
    assert not output.exists()
    assert "Traceback" not in child.stderr
    error = from_text(child.stderr)
    return error.code, str(error)


@pytest.mark.parametrize("quantization", ["float32", "int8"])
def test_two_conversions_give_the_same_bytes(tmp_path, quantization):
    model = write_checkpoint(tmp_path / "model", tie_word_embeddings=True)
    first = converted(model, tmp_path / "first", quantization)
    assert converted(model, tmp_path / "second", quantization) == first


def test_shards_give_what_one_file_gives(tmp_path):
    model = write_checkpoint(tmp_path / "model")
    whole = converted(model, tmp_path / "whole")
    weights = load_file(model / "model.safetensors")
    (model / "model.safetensors").unlink()
    names = {name: f"model-{index % 3}.safetensors" for index, name in enumerate(weights)}
    for file in set(names.values()):
        save_file({name: weights[name] for name in weights if names[name] == file}, model / file)
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    assert converted(model, tmp_path / "sharded") == whole


def test_int8_is_smaller(tmp_path):
    model = write_checkpoint(tmp_path / "model")
    floats = converted(model, tmp_path / "floats")
    integers = converted(model, tmp_path / "integers", "int8")
    assert len(integers["model.bin"]) < len(floats["model.bin"]) / 3


def test_int8_weights_leave_room_for_the_sum_of_two_products_in_16_bits():
    matrix = np.random.default_rng(5).normal(size=(6, 32)).astype(np.float32)
    matrix[2] = 0
    checkpoint = SimpleNamespace(require=lambda *_: None, read=lambda _: matrix.copy())
    spec = SimpleNamespace()
    Variables(checkpoint, int8=True, progress=lambda *_: None).linear(spec, {"projection": 6}, 32)
    weight = np.frombuffer(spec.weight.to_bytes(), np.int8).reshape(6, 32).astype(np.int32)
    scale = np.frombuffer(spec.weight_scale.to_bytes(), np.float32)[:, None]
    assert 2 * 255 * np.abs(weight).max() < 2**15
    np.testing.assert_allclose(weight / scale, matrix, atol=(0.51 / scale).max())


def test_tied_embeddings_are_stored_once(tmp_path):
    tied = converted(write_checkpoint(tmp_path / "model", tie_word_embeddings=True), tmp_path / "tied")
    untied = converted(write_checkpoint(tmp_path / "other"), tmp_path / "untied")
    assert len(untied["model.bin"]) - len(tied["model.bin"]) > 100 * 64 * 4 - 100


def test_a_projection_that_is_there_though_tied_is_left_out(tmp_path):
    model = write_checkpoint(tmp_path / "model", tie_word_embeddings=True)
    expected = converted(model, tmp_path / "expected")
    weights = load_file(model / "model.safetensors")
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    save_file(weights, model / "model.safetensors")
    assert converted(model, tmp_path / "found") == expected


def test_the_output_may_be_an_empty_folder(tmp_path):
    (tmp_path / "output").mkdir()
    converted(write_checkpoint(tmp_path / "model"), tmp_path / "output")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "output"]


def test_progress_counts_bytes_up_to_all_of_them(tmp_path):
    child = convert(write_checkpoint(tmp_path / "model"), tmp_path / "output")
    steps = [
        tuple(map(int, re.fullmatch(r"progress (\d+) (\d+)", line).groups()))
        for line in child.stdout.splitlines()
    ]
    done, totals = zip(*steps, strict=True)
    assert list(done) == sorted(set(done))
    assert set(totals) == {done[-1]}
    assert done[-1] < (tmp_path / "output/model.bin").stat().st_size < done[-1] + 8192


@pytest.mark.parametrize(
    ("changes", "code"),
    [({"architectures": ["GPT2LMHeadModel"]}, "E3200"), ({"hidden_act": "gelu"}, "E3201")],
)
def test_a_config_that_cannot_be_converted_is_refused(tmp_path, changes, code):
    assert refused(write_checkpoint(tmp_path / "model", **changes), tmp_path / "output")[0] == code


def test_a_missing_tensor_is_refused(tmp_path):
    model = write_checkpoint(tmp_path / "model")
    change_weights(model, "model.layers.1.mlp.up_proj.weight", None)
    code, text = refused(model, tmp_path / "output")
    assert code == "E3201"
    assert "it has no tensor model.layers.1.mlp.up_proj.weight" in text


def test_a_tensor_of_another_shape_is_refused(tmp_path):
    model = write_checkpoint(tmp_path / "model")
    change_weights(model, "model.norm.weight", np.ones(63, np.float32))
    assert "model.norm.weight has the shape [63]" in refused(model, tmp_path / "output")[1]


def test_a_tensor_without_a_place_is_refused(tmp_path):
    model = write_checkpoint(tmp_path / "model")
    change_weights(model, "model.layers.0.self_attn.q_proj.bias", np.ones(64, np.float32))
    assert (
        "no place for the tensor model.layers.0.self_attn.q_proj.bias"
        in refused(model, tmp_path / "output")[1]
    )


def test_frequencies_of_old_checkpoints_are_passed_over(tmp_path):
    model = write_checkpoint(tmp_path / "model")
    expected = converted(model, tmp_path / "expected")
    change_weights(model, "model.layers.0.self_attn.rotary_emb.inv_freq", np.ones(8, np.float32))
    assert converted(model, tmp_path / "found") == expected


def test_an_output_that_cannot_be_written_is_said(tmp_path):
    model = write_checkpoint(tmp_path / "model")
    (tmp_path / "file").touch()
    child = convert(model, tmp_path / "file/output")
    assert child.returncode == 1
    assert from_text(child.stderr).code == "E3202"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"num_hidden_layers": 10**9}, "no tensor model.layers.999999999.input_layernorm.weight"),
        ({"vocab_size": 10**9}, "the tensor model.embed_tokens.weight has the shape"),
    ],
)
@pytest.mark.timeout(30)
def test_sizes_without_weights_are_refused_at_once(tmp_path, changes, reason):
    model = write_checkpoint(tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | changes))
    assert reason in refused(model, tmp_path / "output")[1]


def test_a_full_disk_is_said(tmp_path):
    model = write_checkpoint(tmp_path / "model")
    program = """
import errno, os, sys
from ctranslate2.specs import TransformerDecoderModelSpec
from builder.engines.ctranslate2.__main__ import main

def save(self, directory):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

TransformerDecoderModelSpec.save = save
sys.exit(main())
"""
    arguments = ["--model", model, "--output", tmp_path / "output", "--quantization", "float32"]
    child = subprocess.run(
        [engine_python(), "-c", program, *arguments],
        env=os.environ | {"PYTHONPATH": str(PROJECT_ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert from_text(child.stderr).code == "E3105"
    assert not (tmp_path / "output").exists()


def change_weights(model, name, tensor):
    weights = load_file(model / "model.safetensors")
    weights.pop(name, None)
    save_file(weights if tensor is None else weights | {name: tensor}, model / "model.safetensors")
