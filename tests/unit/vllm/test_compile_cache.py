"""Where what vLLM compiles is kept: a folder for one of everything, that survives starts and travels in engine.tar."""

import json
import os
import stat
import tarfile
import tempfile
from pathlib import Path

import pytest

from cli.add_compiled import _told, add_compiled
from runner.engines.vllm import compile_cache
from runner.engines.vllm.compile_cache import COMPILE_CACHE, MADE_FOR, use_compile_cache
from shared.artifact import EngineFacts, PackedFile, extract_archive, write_archive
from shared.errors import NothingCompiled, OutputRefused
from shared.home import SCRATCH

ARGUMENTS = {"model": "/somewhere", "tensor_parallel_size": 1}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """COMPILE_CACHE, on a machine with a GPU; the environment is as before in the end."""
    monkeypatch.setattr(os, "environ", dict(os.environ) | {COMPILE_CACHE: str(tmp_path / "compiled")})
    monkeypatch.setenv("WEIGHTS_CACHE", str(tmp_path / "weights"))
    gpu(monkeypatch)
    return tmp_path / "compiled"


def gpu(monkeypatch, name="NVIDIA H200", driver="580.65"):
    monkeypatch.setattr(compile_cache, "_gpus", lambda: {"driver": driver, "gpus": [[name, 9, 0]]})


def archive(path, weights=b"w", **facts):
    made = EngineFacts(**{"engine": "vllm", "model": "m", "cog_triton_version": "1"} | facts)
    files = {"config.json": b"{}", "engine/config.json": b"{}", "engine/model.safetensors": weights}
    write_archive(path, made, [PackedFile(name, content) for name, content in files.items()])
    return path


def unpacked(path, into):
    with path.open("rb") as stream:
        extract_archive(stream, into, check=lambda _: None, max_bytes=1 << 20)
    return into


@pytest.fixture
def engine(tmp_path):
    return unpacked(archive(tmp_path / "engine.tar"), tmp_path / "engine")


def used(engine, hosts=1, **arguments):
    """The folder of a start, and its variables."""
    for variable in compile_cache._VARIABLES:
        os.environ.pop(variable, None)
    given = use_compile_cache(engine, ARGUMENTS | arguments, hosts)
    return Path(given["model"]).parent


def test_the_next_start_finds_it(engine, cache):
    folder = used(engine)
    assert folder.parent == cache
    assert os.environ["VLLM_CACHE_ROOT"] == f"{folder}/vllm"
    assert os.environ["TRITON_CACHE_DIR"] == f"{folder}/triton"
    assert (folder / "model").resolve() == engine / "engine"
    assert json.loads((folder / MADE_FOR).read_text())["driver"] == "580.65"
    (folder / "triton").mkdir()
    assert used(engine) == folder
    assert (folder / "triton").is_dir()


def test_only_its_user_can_write_code_into_it(engine):
    assert stat.S_IMODE(used(engine).stat().st_mode) == 0o700


def test_nothing_is_used_for_another(engine, tmp_path, monkeypatch):
    folders = [used(engine), used(engine, tensor_parallel_size=2), used(engine, dtype="float16")]
    folders.append(used(engine, hosts=2, tensor_parallel_size=2))
    folders.append(used(unpacked(archive(tmp_path / "b.tar", b"other"), tmp_path / "other")))
    gpu(monkeypatch, name="NVIDIA H100")
    folders.append(used(engine))
    gpu(monkeypatch, driver="590.10")
    folders.append(used(engine))
    package = tmp_path / "site/vllm-0.27.0.dist-info"
    package.mkdir(parents=True)
    monkeypatch.syspath_prepend(package.parent)
    folders.append(used(engine))
    assert len(set(folders)) == len(folders)


def test_where_the_model_lies_changes_nothing(engine, tmp_path):
    again = unpacked(tmp_path / "engine.tar", tmp_path / "elsewhere")
    draft = {"model": f"{engine}/draft"}, {"model": f"{again}/draft"}
    folder = used(engine, speculative_config=draft[0])
    assert used(again, speculative_config=draft[1]) == folder
    assert (folder / "model").resolve() == again / "engine"


def test_a_model_in_place_is_known_by_its_files(tmp_path):
    (tmp_path / "engine").mkdir()
    weights = tmp_path / "engine/model.safetensors"
    weights.write_bytes(b"w")
    folder = used(tmp_path)
    assert used(tmp_path) == folder
    weights.write_bytes(b"longer")
    assert used(tmp_path) != folder


def test_what_the_operator_has_set_stays(engine, monkeypatch):
    monkeypatch.setenv("VLLM_CACHE_ROOT", "/theirs")
    use_compile_cache(engine, ARGUMENTS)
    assert os.environ["VLLM_CACHE_ROOT"] == "/theirs"


def test_without_a_place_vllm_decides(engine, monkeypatch):
    monkeypatch.delenv(COMPILE_CACHE)
    assert use_compile_cache(engine, ARGUMENTS) == {}
    assert "TRITON_CACHE_DIR" not in os.environ


def test_a_place_that_cannot_be_written_to_costs_time_alone(engine, tmp_path, monkeypatch, capfd):
    (tmp_path / "file").touch()
    monkeypatch.setenv(COMPILE_CACHE, str(tmp_path / "file/compiled"))
    monkeypatch.setenv(SCRATCH, str(tmp_path / "run"))
    folder = used(engine)
    assert folder.parent == tmp_path / "run/compiled"
    assert (folder / "model").resolve() == engine / "engine"
    assert "cannot be written to (Not a directory): what vLLM compiles is lost" in capfd.readouterr().err
    assert used(engine) == folder


def test_a_place_that_cannot_be_written_to_leaves_nothing_behind(engine, tmp_path, monkeypatch):
    """Where nobody would remove it in the end, vLLM decides."""
    monkeypatch.setenv(COMPILE_CACHE, "/proc/compiled")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    (tmp_path / "tmp").mkdir()
    assert use_compile_cache(engine, ARGUMENTS) == {}
    assert list((tmp_path / "tmp").iterdir()) == []


def test_of_two_that_start_at_once_both_use_what_the_first_has_made(engine, monkeypatch):
    first = used(engine)
    (first / "triton").mkdir()
    not_yet = iter([False])
    is_file = Path.is_file
    monkeypatch.setattr(Path, "is_file", lambda path: next(not_yet, True) and is_file(path))
    assert used(engine) == first
    assert (first / "triton").is_dir()


def test_what_was_used_last_is_kept(engine, cache):
    folders = [used(engine, max_num_seqs=count) for count in range(1, 11)]
    for age, folder in enumerate(reversed(folders)):
        if folder.exists():
            os.utime(folder, (1e9 - age, 1e9 - age))
    newest = used(engine, max_num_seqs=100)
    assert set(cache.iterdir()) == {newest, *folders[-7:]}


@pytest.fixture
def shipped(engine, tmp_path, cache):
    """An engine.tar that brings what the first start has compiled, on a machine that has compiled nothing."""
    folder = used(engine)
    for name in ("triton/abc/launcher.so", "zig/o/launcher.o"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(b"code")
    used(engine, tensor_parallel_size=2)
    other = unpacked(archive(tmp_path / "b.tar", b"other"), tmp_path / "other")
    used(other)
    told = add_compiled(str(tmp_path / "engine.tar"), tmp_path / "shipped.tar")
    assert told == ["NVIDIA H200, driver 580.65"] * 2
    cache.rename(tmp_path / "before")
    return unpacked(tmp_path / "shipped.tar", tmp_path / "shipped")


def test_a_machine_without_gpus_is_told():
    assert _told({"driver": None, "gpus": []}) == "a CPU"


def test_engine_tar_brings_it(shipped, monkeypatch):
    monkeypatch.setenv("ALLOW_MODEL_CODE", "1")
    folder = used(shipped)
    assert (folder / "triton/abc/launcher.so").read_bytes() == b"code"
    assert not (folder / "zig").exists()
    assert (folder / "model").resolve() == shipped / "engine"
    gpu(monkeypatch, name="NVIDIA L4")
    assert not (used(shipped) / "triton").exists()


def test_code_in_an_archive_is_the_operators_decision(shipped, capfd):
    assert not (used(shipped) / "triton").exists()
    assert "loaded only if ALLOW_MODEL_CODE=1" in capfd.readouterr().err


def test_what_no_build_has_written_is_not_overwritten(tmp_path):
    archive(tmp_path / "engine.tar")
    config = tmp_path / "config.yaml"
    config.write_text("engine: vllm")
    with pytest.raises(OutputRefused, match="was not written by a build"):
        add_compiled(str(tmp_path / "engine.tar"), config, tmp_path / "nothing")
    assert config.read_text() == "engine: vllm"


def test_nothing_was_compiled_for_it(tmp_path):
    archive(tmp_path / "engine.tar")
    with pytest.raises(
        NothingCompiled, match=r"contains nothing that vLLM compiled for .*\. Serve this engine"
    ):
        add_compiled(str(tmp_path / "engine.tar"), tmp_path / "out.tar", tmp_path / "nothing")
    with pytest.raises(
        NothingCompiled, match=r"That folder cannot be read \(File name too long\): give the right"
    ):
        add_compiled(str(tmp_path / "engine.tar"), tmp_path / "out.tar", tmp_path / ("a" * 300))
    archive(tmp_path / "mock.tar", engine="mock")
    with pytest.raises(
        NothingCompiled, match='The engine is of the kind "mock"; only vLLM compiles at its start'
    ):
        add_compiled(str(tmp_path / "mock.tar"), tmp_path / "out.tar")
    with tarfile.open(tmp_path / "old.tar", "w") as old:
        old.addfile(tarfile.TarInfo("config.json"))
    with pytest.raises(
        NothingCompiled,
        match="it was packed anew, or is not for vLLM; only vLLM",
    ):
        add_compiled(str(tmp_path / "old.tar"), tmp_path / "out.tar")
    assert not (tmp_path / "out.tar").exists()
