import json
import struct
import tempfile

import pytest

from builder.check.estimate import check_machine, estimate
from builder.check.report import check
from builder.findings import Findings
from builder.sources.parameters import parameters_of

SEVEN_BILLION = {"BF16": 7_000_000_000}


def calls(more=""):
    return check(f"engine: tensorrt_llm\nmodel: a/b\n{more}", "c").calls


@pytest.fixture
def checkpoint(tmp_path):
    """Two tensors of 8 parameters each, as a checkpoint of one file."""
    header = {
        "a": {"dtype": "BF16", "shape": [2, 4], "data_offsets": [0, 16]},
        "b": {"dtype": "F32", "shape": [8], "data_offsets": [16, 48]},
    }
    text = json.dumps(header).encode()
    content = struct.pack("<Q", len(text)) + text + bytes(48)
    (tmp_path / "model.safetensors").write_bytes(content)
    return tmp_path


def test_parameters_are_counted_from_headers(checkpoint):
    assert parameters_of(checkpoint, None, None) == {"BF16": 8, "F32": 8}


@pytest.mark.parametrize(
    ("more", "gigabytes"),
    [
        ("", 14.0),
        ("quantization: fp8", 7.0),
        ("quantization: int4_wo", 3.5),
        ("dtype: float32", 28.0),
    ],
)
def test_the_engine_has_the_size_of_its_weights(more, gigabytes):
    assert estimate(SEVEN_BILLION, calls(more)).engine / 1e9 == pytest.approx(gigabytes)


def test_gpus_share():
    one, four = (estimate(SEVEN_BILLION, calls(f"tensor_parallel_size: {n}")) for n in (1, 4))
    assert four.gpu_memory * 4 == one.gpu_memory
    assert four.disk == one.disk


def test_a_conversion_by_arguments():
    text = (
        "model_id: a/b\nexample_name: llama\nconvert_to_ft:\n  script: convert_checkpoint.py\n  output_dir: c\n"
        "  args: {%s}\nbuild: {executable: trtllm-build, output_dir: e}"
    )
    sizes = [
        estimate(SEVEN_BILLION, check(text % args, "c").calls).engine / 1e9
        for args in (
            "",
            "use_weight_only: ",
            "use_weight_only: , weight_only_precision: int4",
            "smoothquant: 0.5",
        )
    ]
    assert sizes == [14.0, 7.0, 3.5, 7.0]


def test_a_machine_that_is_too_small():
    needed = estimate({"F32": 10**15}, calls())
    findings = Findings()
    check_machine(needed, findings)
    assert [one.error.details["what"] for one in findings.found] == ["memory", "disk"]
    assert findings.errors == []


def test_a_machine_where_no_file_can_be_made(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/none")
    findings = Findings()
    check_machine(estimate({"F32": 1000}, calls()), findings)
    assert [one.error.details["what"] for one in findings.found] == ["disk"]


def test_a_machine_that_is_large_enough():
    findings = Findings()
    check_machine(estimate({"F32": 1000}, calls()), findings)
    assert findings.found == []


def test_it_reads_as_a_sentence():
    assert str(estimate(SEVEN_BILLION, calls())) == (
        "7.0 billion parameters; roughly 28.0 GB of memory, 28.0 GB of each GPU, 56.0 GB of disk;"
        " the engine takes 14.0 GB"
    )
