from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from builder.engines.ctranslate2.checkpoint import Checkpoint
from shared.errors import CheckpointInvalid

MATRIX = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    save_file({"a": MATRIX}, tmp_path / "model.safetensors")
    return tmp_path


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_every_float_type_is_read_as_float32(directory, dtype):
    save_file({"a": MATRIX.astype(dtype)}, directory / "model.safetensors")
    found = Checkpoint(directory).read(["a"])
    assert found.dtype == np.float32
    assert np.array_equal(found, MATRIX)


def test_several_tensors_are_read_one_below_the_other(directory):
    save_file({"a": MATRIX, "b": MATRIX + 6}, directory / "model.safetensors")
    found = Checkpoint(directory).read(["a", "b"])
    assert np.array_equal(found, np.arange(12, dtype=np.float32).reshape(4, 3))


def test_shards_are_found_through_the_index(directory):
    (directory / "model.safetensors").unlink()
    save_file({"a": MATRIX}, directory / "model-1.safetensors")
    save_file({"b": MATRIX}, directory / "model-2.safetensors")
    write_index(directory, a="model-1.safetensors", b="model-2.safetensors")
    assert Checkpoint(directory).never_required() == ["a", "b"]


def test_tensors_that_were_required_are_known(directory):
    checkpoint = Checkpoint(directory)
    checkpoint.require("a", (2, 3))
    assert checkpoint.never_required() == []


def test_a_missing_tensor_is_named(directory):
    with pytest.raises(CheckpointInvalid, match="it has no tensor lm_head"):
        Checkpoint(directory).require("lm_head", (2, 3))


def test_another_shape_is_named(directory):
    with pytest.raises(
        CheckpointInvalid, match=r"a has the shape \[2, 3\], but config.json implies \[3, 2\]"
    ):
        Checkpoint(directory).require("a", (3, 2))


def test_weights_that_are_not_floats_are_refused(directory):
    save_file({"a": MATRIX.astype(np.int8)}, directory / "model.safetensors")
    with pytest.raises(CheckpointInvalid, match="type I8"):
        Checkpoint(directory).require("a", (2, 3))


def test_a_truncated_file_is_refused(directory):
    content = (directory / "model.safetensors").read_bytes()
    (directory / "model.safetensors").write_bytes(content[:-4])
    with pytest.raises(CheckpointInvalid, match=r"model\.safetensors is damaged or incomplete"):
        Checkpoint(directory)


def test_a_git_lfs_pointer_is_refused(directory):
    (directory / "model.safetensors").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
    )
    with pytest.raises(CheckpointInvalid, match="Git LFS pointer"):
        Checkpoint(directory)


def test_a_missing_shard_is_named(directory):
    write_index(directory, a="model-1.safetensors")
    with pytest.raises(CheckpointInvalid, match=r"it has no model-1\.safetensors"):
        Checkpoint(directory)


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", ".hidden"])
def test_an_index_cannot_lead_elsewhere(directory, name):
    write_index(directory, a=name)
    with pytest.raises(CheckpointInvalid, match="not beside it"):
        Checkpoint(directory)


@pytest.mark.parametrize("content", ['{"weight_map": {}}', '{"weight_map": []}', "{}"])
def test_an_index_without_files_is_refused(directory, content):
    (directory / "model.safetensors.index.json").write_text(content)
    with pytest.raises(CheckpointInvalid, match="has no weight_map"):
        Checkpoint(directory)


@pytest.mark.parametrize(
    ("content", "reason"),
    [("{", "is not JSON"), ("[" * 100_000, "is not JSON"), ("[]", "is not a JSON object")],
)
def test_a_broken_config_is_refused(directory, content, reason):
    (directory / "config.json").write_text(content)
    with pytest.raises(CheckpointInvalid, match=reason):
        Checkpoint(directory)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_missing_file_is_named(directory, name):
    (directory / name).unlink()
    with pytest.raises(CheckpointInvalid, match=f"it has no {name}"):
        Checkpoint(directory)


def test_a_folder_is_no_file(directory):
    (directory / "model.safetensors").unlink()
    (directory / "model.safetensors").mkdir()
    with pytest.raises(CheckpointInvalid, match=r"it has no model\.safetensors"):
        Checkpoint(directory)


def write_index(directory, **files):
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))


def test_weights_that_cannot_be_read(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").symlink_to("/proc/self/mem")  # its first bytes are nobody's
    with pytest.raises(CheckpointInvalid, match=r"model.safetensors cannot be read \(Input/output error\)"):
        Checkpoint(tmp_path)
