"""A site-packages folder: libraries, TensorRT's builder resources, RECORD."""

from __future__ import annotations

import base64
import csv
import hashlib
import json

import pytest

from nix.prune import Outcome, Refused, prune_wheel_tree
from nix.prune.__main__ import main
from tests.unit.prune.libraries import CUBIN, Library, container, device_code_of, entry

LIBRARY = Library([container(entry(CUBIN, 80), entry(CUBIN, 90))]).build()
RESOURCES = [
    f"tensorrt_libs/libnvinfer_builder_resource_{target}.so.10.14.1"
    for target in ("sm80", "sm86", "sm90", "ptx", "win_sm86")
]


def digest(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


@pytest.fixture
def root(tmp_path):
    files = {
        "torch/lib/libtorch_cuda.so": LIBRARY,
        "torch/notes, and more.txt": b"text",
        "tensorrt_libs/libnvinfer.so.10": b"\x7fELF, of another machine" + bytes(64),
        **dict.fromkeys(RESOURCES, LIBRARY),
    }
    rows = [[name, digest(content), str(len(content))] for name, content in files.items()]
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "torch/lib/link.so").symlink_to("libtorch_cuda.so")
    record = tmp_path / "torch-2.dist-info/RECORD"
    record.parent.mkdir()
    with record.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([*rows, ["torch-2.dist-info/RECORD", "", ""]])
    return tmp_path


def resources(root) -> set[str]:
    return {path.name.split("resource_")[1].split(".")[0] for path in root.rglob("*builder_resource*")}


def test_record_is_true(root):
    report = prune_wheel_tree(root, 90)
    with (root / "torch-2.dist-info/RECORD").open(newline="") as file:
        rows = {name: (found, size) for name, found, size in csv.reader(file)}
    assert report.records == ["torch-2.dist-info/RECORD"]
    assert rows.pop("torch-2.dist-info/RECORD") == ("", "")
    assert set(rows) == {
        "torch/lib/libtorch_cuda.so",
        "torch/notes, and more.txt",
        "tensorrt_libs/libnvinfer.so.10",
    }
    for name, row in rows.items():
        content = (root / name).read_bytes()
        assert row == (digest(content), str(len(content)))


def test_libraries_are_reported_by_their_path(root):
    report = prune_wheel_tree(root, 90)
    outcomes = {library.path: (library.outcome, library.reason) for library in report.libraries}
    assert outcomes == {
        "torch/lib/libtorch_cuda.so": (Outcome.PRUNED, ""),
        "tensorrt_libs/libnvinfer.so.10": (Outcome.REFUSED, "not an ELF file for x86-64"),
    }
    assert device_code_of((root / "torch/lib/libtorch_cuda.so").read_bytes()) == [[(CUBIN, 90, 0xAB)]]
    assert (root / "torch/lib/link.so").is_symlink()


def test_a_runner_has_no_builder_resources(root):
    report = prune_wheel_tree(root, 86)
    assert resources(root) == set()
    assert report.removed == dict.fromkeys(sorted(RESOURCES), len(LIBRARY))


def test_a_builder_keeps_its_own(root):
    prune_wheel_tree(root, 86, builder=[86])
    assert resources(root) == {"sm86", "ptx"}


def test_a_builder_without_its_own_is_refused(root):
    with pytest.raises(Refused, match=r"no builder resource for sm87 here, only for sm80, sm86, sm90"):
        prune_wheel_tree(root, 87, builder=[86, 87])
    assert len(resources(root)) == len(RESOURCES)


def test_a_second_run_changes_nothing(root):
    prune_wheel_tree(root, 90)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    report = prune_wheel_tree(root, 90)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    assert (report.removed, report.records) == ({}, [])


def test_a_dry_run_writes_nothing(root):
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert len(prune_wheel_tree(root, 90, dry_run=True).removed) == len(RESOURCES)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_command(root, capsys):
    assert main(["--sm", "90", "--tree", str(root), "--report", "json"]) == 0
    [report] = json.loads(capsys.readouterr().out)
    assert report["sm"] == 90
    assert "removed" in report
    assert main(["--sm", "90", "--tree", str(root)]) == 0
    assert "libtorch_cuda.so: unchanged, device code" in capsys.readouterr().out


DSL = "nvidia_cutlass_dsl"
FLAVOURS = [
    f"{DSL}/{place}"
    for cuda in ("cu12", "cu13")
    for place in (
        f"{cuda}/lib/libcute_dsl_runtime.so",
        f"{cuda}/include/a.h",
        f"packages/_cutlass_ir.{cuda}.so",
    )
]
AMD = [f"{name}/backends/amd/lib/libtriton_amd_codegen.so" for name in ("triton", "tokenspeed_triton")]


def installed(root, names: list[str]) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(LIBRARY)
    record = root / f"{DSL}-4.6.0.dist-info/RECORD"
    record.parent.mkdir()
    record.write_text("".join(f"{name},sha256={'x' * 43},{len(LIBRARY)}\n" for name in names))


def left(root) -> set[str]:
    record = root / f"{DSL}-4.6.0.dist-info/RECORD"
    names = {line.partition(",")[0] for line in record.read_text().splitlines()}
    found = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    assert names == {
        name for name in found if name.startswith((DSL, "triton", "tokenspeed")) and "RECORD" not in name
    }
    return names


def test_what_is_for_another_cuda_or_for_amd_goes(tmp_path):
    (tmp_path / "nvidia/cu13/lib").mkdir(parents=True)
    (tmp_path / "nvidia/cu13/lib/libcublas.so.13").write_bytes(LIBRARY)
    installed(tmp_path, [*FLAVOURS, *AMD])
    report = prune_wheel_tree(tmp_path, 86)
    assert left(tmp_path) == {name for name in FLAVOURS if "cu13" in name}
    assert set(report.removed) == {*AMD, *(name for name in FLAVOURS if "cu12" in name)}
    assert not (tmp_path / DSL / "cu12").exists()
    assert prune_wheel_tree(tmp_path, 86).removed == {}


def test_what_is_for_another_cuda_stays_where_nothing_else_is(tmp_path):
    (tmp_path / "nvidia/cu13/lib").mkdir(parents=True)
    (tmp_path / "nvidia/cu13/lib/libcublas.so.13").write_bytes(LIBRARY)
    installed(tmp_path, [name for name in FLAVOURS if "cu12" in name])
    assert prune_wheel_tree(tmp_path, 86).removed == {}
    assert len(left(tmp_path)) == 3


def test_nothing_goes_that_is_for_no_gpu_in_particular(tmp_path):
    installed(tmp_path, [*FLAVOURS, *AMD])
    assert prune_wheel_tree(tmp_path, None).removed == {}


NOT_LOADED = [
    "torch/include/ATen/Tensor.h",
    "include/cudnn_frontend/graph.h",
    "flashinfer/data/cccl/thrust/vector",
    "flashinfer/jit/core.py",
    "tilelang/3rdparty/tvm/src/runtime.cc",
    "tilelang/src/op/gemm.cc",
    "triton/backends/nvidia/lib/cupti/libcupti_static.a",
    "samples/tutorial.ipynb",
]
LOADED = [
    "triton/backends/nvidia/include/cuda.h",
    "nvidia/cu13/include/cuda_fp16.h",
    "nvidia/cu13/lib/libcudadevrt.a",
    "tilelang/src/tl_templates/cuda/gemm.h",
    "torch/lib/libtorch.so",
]


def test_what_only_compilers_read_goes(tmp_path):
    installed(tmp_path, [*NOT_LOADED, *LOADED])
    assert set(prune_wheel_tree(tmp_path, 90).removed) == set(NOT_LOADED)
    assert all((tmp_path / name).exists() for name in LOADED)


@pytest.mark.parametrize(
    ("sm", "gone"), [(86, {"deep_gemm", "tokenspeed"}), (90, {"tokenspeed"}), (100, set())]
)
def test_what_newer_gpus_run_goes(tmp_path, sm, gone):
    names = {
        "deep_gemm": ["vllm/third_party/deep_gemm/include/a.cuh"],
        "tokenspeed": [
            "tokenspeed_mla/a.py",
            "tokenspeed_triton/libtriton.so",
            "vllm/third_party/fmha_sm100/csrc/a.cu",
        ],
    }
    installed(tmp_path, [name for group in names.values() for name in group])
    wanted = {name for key in gone for name in names[key]}
    assert set(prune_wheel_tree(tmp_path, sm).removed) == wanted


def test_copies_of_a_library_become_links(tmp_path):
    codec = [f"{DSL}/libavcodec.so{end}" for end in ("", ".", ".62", ".62.28.101")]
    installed(tmp_path, codec)
    (tmp_path / DSL / "libavcodec_other.so").write_bytes(LIBRARY)
    report = prune_wheel_tree(tmp_path, 90)
    assert set(report.linked) == set(codec[:3])
    assert {(tmp_path / name).readlink().as_posix() for name in codec[:3]} == {"libavcodec.so.62.28.101"}
    rows = (tmp_path / f"{DSL}-4.6.0.dist-info/RECORD").read_text().splitlines()
    content = (tmp_path / codec[3]).read_bytes()
    assert rows == [f"{name},{digest(content)},{len(content)}" for name in codec]
    assert content != LIBRARY
    assert prune_wheel_tree(tmp_path, 90).linked == {}


@pytest.mark.parametrize(
    ("place", "told"), [("none", "No such file or directory"), ("file", "Not a directory")]
)
def test_what_is_no_folder_is_refused(tmp_path, capsys, place, told):
    (tmp_path / "file").touch()
    assert main(["--sm", "86", "--tree", str(tmp_path / place)]) == 1
    assert capsys.readouterr().err == f"prune: {tmp_path / place}: {told}\n"
