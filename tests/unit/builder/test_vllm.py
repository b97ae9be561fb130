"""engine.tar of a model for vLLM: what of the model is in it, and that nothing else is."""

import json
import os
import struct
import tarfile

import pytest

from builder.engines.vllm_checkpoint import PACKAGES
from builder.pipeline import build
from runner.engines.vllm.settings import engine_arguments
from shared import vllm_arguments
from shared.artifact import extract_archive, write_archive
from shared.errors import CheckpointInvalid, ConfigCheckFailed, ModelFilesMissing
from tests.support.hub import Repository
from tests.support.weights import safetensors
from tools.vllm_arguments.policy import PACKAGES as REFUSED

TOKENIZER = {
    "version": "1.0",
    "added_tokens": [
        {"id": 1, "content": "</s>", "special": True, "normalized": False}
        | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
    ],
    "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"},
}


@pytest.fixture
def published(model_dir):
    """`someone/tiny`, with what models have besides."""
    (model_dir / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    for name in ("README.md", "consolidated.safetensors", "modeling_tiny.py", "pytorch_model.bin"):
        (model_dir / name).write_bytes(b"x")
    return model_dir


@pytest.fixture
def made(tmp_path, hub):
    """Build a config; the manifest and the archive."""

    def made(config: str):
        return build(f"data:,{config}", tmp_path / "engine.tar", work_dir=tmp_path), tmp_path / "engine.tar"

    return made


def names(archive, folder):
    with tarfile.open(archive) as tar:
        return [name.partition("/")[2] for name in tar.getnames() if name.startswith(f"{folder}/")]


def test_the_snapshot_is_pinned_and_as_published(made, hub, published):
    manifest, archive = made("{engine: vllm, model: someone/tiny, tensor_parallel_size: 2}")
    assert (manifest.engine, manifest.engine_version) == ("vllm", vllm_arguments.table()["version"])
    assert (manifest.model, manifest.revision) == ("someone/tiny", hub.repositories["someone/tiny"].commit)
    assert (manifest.ranks, manifest.sm) == (2, None)
    assert manifest.gpu_bytes == (published / "model.safetensors").stat().st_size // 2
    assert names(archive, "engine") == ["config.json", "generation_config.json", "model.safetensors"]
    assert "tokenizer.json" in names(archive, "tokenizer")
    with tarfile.open(archive) as tar:
        weights = tar.extractfile("engine/model.safetensors").read()
    assert weights == (published / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    "less", ["quantization: fp8", "engine_args: {cpu_offload_gb: 4}", "engine_args: {load_format: dummy}"]
)
def test_what_the_weights_take_of_a_gpu_is_not_known_where_they_change(made, published, less):
    assert published.is_dir()
    manifest, _ = made(f"{{engine: vllm, model: someone/tiny, {less}}}")
    assert manifest.gpu_bytes is None


def test_weights_that_need_a_package_which_the_images_lack_are_refused(made, published):
    config = json.dumps({"model_type": "llama", "quantization_config": {"quant_method": "torchao"}})
    (published / "config.json").write_text(config)
    with pytest.raises(CheckpointInvalid, match="vLLM needs the package torchao, and the images lack"):
        made("{engine: vllm, model: someone/tiny}")


def test_the_packages_of_weights_are_those_of_arguments():
    needed = {name: package for package, one in REFUSED.items() for name in one.get("quantization", ())}
    assert needed == PACKAGES


def test_weights_in_parts_are_counted_once(made, published):
    for part in ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"):
        (published / part).write_bytes((published / "model.safetensors").read_bytes())
    manifest, _ = made("{engine: vllm, model: someone/tiny}")
    assert manifest.gpu_bytes == 2 * (published / "model.safetensors").stat().st_size


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
INDEX = "model.safetensors.index.json"
GPTQ = "gptq_model-4bit.safetensors"
PART = "model-00001-of-00002.safetensors"


def index(*names):
    return json.dumps({"weight_map": dict(enumerate(names))}).encode()


@pytest.mark.parametrize(
    "names",
    [
        ["model.safetensors-00001-of-00001.safetensors"],  # Qwen3.5
        ["model.safetensors-00001-of-00002.safetensors", "model.safetensors-00002-of-00002.safetensors"],
        ["model_00001-of-00002.safetensors", "model_00002-of-00002.safetensors"],
        ["model-1-of-2.safetensors", "model-2-of-2.safetensors"],
        ["model-00001.safetensors", "model-00002.safetensors"],
        ["layers-0.safetensors", "layers-1.safetensors", "mtp.safetensors", "outside.safetensors"],  # Qwen3.6
        ["model.safetensors", "mtp.safetensors"],
        ["model[0].safetensors"],
    ],
)
@pytest.mark.parametrize("of", ["hub", "folder"])
def test_weights_have_the_names_that_their_index_lists(made, hub, published, names, of, tmp_path):
    whole = (published / "model.safetensors").read_bytes()
    (published / "model.safetensors").unlink()
    (published / "model-of-no-index.safetensors").write_bytes(b"x")
    for name in names:
        (published / name).write_bytes(whole)
    (published / INDEX).write_bytes(index(*names))
    manifest, archive = made(f"{{engine: vllm, model: {'someone/tiny' if of == 'hub' else published}}}")
    assert manifest.gpu_bytes == len(names) * len(whole)
    assert not any("no-index" in request or "consolidated" in request for request in hub.file_requests())
    with archive.open("rb") as stream:
        extract_archive(stream, tmp_path / "unpacked", check=lambda _: None, max_bytes=1 << 30)
    assert {path.name for path in (tmp_path / "unpacked/engine").glob("*.safetensors")} == {*names}


def test_what_is_counted_is_what_the_index_lists(made, published):
    """And not the same weights in another type, in a whole file beside it."""
    whole = json.dumps({"a": {"dtype": "F32", "shape": [10_000], "data_offsets": [0, 40_000]}}).encode()
    (published / "model.safetensors").write_bytes(struct.pack("<Q", len(whole)) + whole + bytes(40_000))
    (published / PART).write_bytes(safetensors())
    (published / INDEX).write_bytes(index(PART))
    manifest, archive = made(f"{{engine: vllm, model: {published}}}")
    assert manifest.gpu_bytes == len(safetensors())
    assert "model.safetensors" not in names(archive, "engine")


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_no_other_weights_lead_out_of_a_folder(made, published, tmp_path, kind):
    """Whatever reads headers may come upon them."""
    (published / "model.safetensors").rename(tmp_path / "secret")
    if kind == "pipe":
        os.mkfifo(published / "model.safetensors")
    else:
        (published / "model.safetensors").symlink_to(tmp_path / "secret")
    (published / PART).write_bytes(safetensors())
    (published / INDEX).write_bytes(index(PART))
    with pytest.raises(ConfigCheckFailed, match=r"E3107 .*model\.safetensors"):
        made(f"{{engine: vllm, model: {published}}}")


def test_what_is_built_is_what_the_engine_reads(made, published, tmp_path):
    _, archive = made(
        "{engine: vllm, model: someone/tiny, max_model_len: 512, engine_args: {max_num_seqs: 8}}"
    )
    with archive.open("rb") as stream:
        extract_archive(stream, tmp_path / "unpacked", check=lambda _: None, max_bytes=1 << 30)
    assert engine_arguments(tmp_path / "unpacked") == {
        "dtype": "auto",
        "max_model_len": 512,
        "max_num_seqs": 8,
        "tensor_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "model": str(tmp_path / "unpacked/engine"),
        "skip_tokenizer_init": True,
        "language_model_only": True,
        "gdn_prefill_backend": "triton",
        "structured_outputs_config": {"enable_in_reasoning": True},
    }


def test_two_builds_are_the_same_bytes(made, published, tmp_path):
    _, archive = made("{engine: vllm, model: someone/tiny}")
    first = archive.read_bytes()
    _, archive = made("{engine: vllm, model: someone/tiny}")
    assert archive.read_bytes() == first


def test_nothing_is_copied_on_the_way(made, published, tmp_path, monkeypatch):
    sizes = []

    def packed(output, facts, files, progress):
        held = [path for path in tmp_path.glob("cog-triton-build-*/**/*") if path.is_file()]
        sizes.append(sum(path.stat().st_size for path in held if not path.is_symlink()))
        return write_archive(output, facts, files, progress)

    monkeypatch.setattr("builder.package.write_archive", packed)
    made("{engine: vllm, model: someone/tiny}")
    assert sizes == [0]


@pytest.mark.parametrize(
    "files",
    [
        ["gptq_model-4bit-128g.safetensors", "quantize_config.json"],
        [
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json",
        ],
        ["model.safetensors", "hf_quant_config.json"],
        ["model.safetensors", "quant_config.json", "preprocessor_config.json"],
    ],
)
def test_quantized_checkpoints_come_as_they_are(made, published, files):
    (published / "model.safetensors").unlink()
    (published / "pytorch_model.bin").unlink()
    for name in files:
        (published / name).write_bytes(b"{}" if name.endswith(".json") else safetensors())
    if (index := published / "model.safetensors.index.json").exists():
        index.write_text(json.dumps({"weight_map": {"a": files[0], "b": files[1]}}))
    _, archive = made("{engine: vllm, model: someone/tiny}")
    assert names(archive, "engine") == sorted(["config.json", "generation_config.json", *files])


def test_a_folder_is_packed_too(made, published, tmp_path):
    manifest, archive = made(f"{{engine: vllm, model: {published}}}")
    assert (manifest.model, manifest.revision) == ("published", None)
    assert names(archive, "engine") == ["config.json", "generation_config.json", "model.safetensors"]


def test_a_model_that_drafts_comes_too(made, hub, published, tmp_path):
    draft = tmp_path / "draft-model"
    draft.mkdir()
    (draft / "config.json").write_text("{}")
    (draft / "pytorch_model.bin").write_bytes(b"draft")
    hub.repositories["someone/draft"] = Repository(draft)
    _, archive = made(
        "{engine: vllm, model: someone/tiny, "
        "speculative_config: {method: eagle, model: someone/draft, num_speculative_tokens: 3}}"
    )
    assert names(archive, "draft") == ["config.json", "pytorch_model.bin"]
    assert "pytorch_model.bin" not in names(archive, "engine")
    with archive.open("rb") as stream:
        extract_archive(stream, tmp_path / "unpacked", check=lambda _: None, max_bytes=1 << 30)
    assert engine_arguments(tmp_path / "unpacked")["speculative_config"] == {
        "method": "eagle",
        "model": str(tmp_path / "unpacked/draft"),
        "num_speculative_tokens": 3,
    }


def test_code_comes_only_where_the_operator_lets_it_run(made, published, monkeypatch):
    config = "{engine: vllm, model: someone/tiny, engine_args: {trust_remote_code: true}}"
    with pytest.raises(ConfigCheckFailed, match=r"E3033 .*trust_remote_code"):
        made(config)
    monkeypatch.setenv("ALLOW_MODEL_CODE", "1")
    _, archive = made(config)
    assert "modeling_tiny.py" in names(archive, "engine")


def test_a_model_without_weights_is_refused(made, published):
    for name in ("model.safetensors", "pytorch_model.bin"):
        (published / name).unlink()
    with pytest.raises(ModelFilesMissing, match="safetensors or gptq or bin"):
        made("{engine: vllm, model: someone/tiny}")


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({INDEX: index(PART, "model-00002-of-00002.safetensors"), PART: safetensors()}, "has no model-00002"),
        (
            {INDEX: index("weights.bin"), "weights.bin": b"x"},
            r"lists weights\.bin, but such files are named \*\.safetensors",
        ),
        (
            {f"{GPTQ}.index.json": index("weights.bin"), GPTQ: safetensors()},
            r"but such files are named \*\.safetensors\. ",
        ),
        ({INDEX: index("../x.safetensors")}, r"'\.\./x\.safetensors', which is not beside it"),
        ({INDEX: index(".x.safetensors"), ".x.safetensors": safetensors()}, "which is not beside it"),
        ({INDEX: index("*.safetensors"), PART: safetensors()}, r"has no \*\.safetensors"),
        ({INDEX: index(*(f"{number}.safetensors" for number in range(2001)))}, "lists more than 2000 files"),
        ({INDEX: index("a.safetensors"), "a.safetensors": POINTER}, r"a\.safetensors is a Git LFS pointer"),
        ({INDEX: b"{}"}, "no weight_map"),
        ({"model.safetensors": POINTER}, r"model\.safetensors is a Git LFS pointer"),
        ({"model.safetensors": bytes(100)}, r"damaged or incomplete \(its header cannot be read\)"),
        ({"model.safetensors": b"x"}, "its header cannot be read"),
        ({"model.safetensors": b"\xff" * 100}, "its header cannot be read"),
        ({"model.safetensors": safetensors()[:-500]}, r"it has \d+ bytes, but its header accounts for \d+"),
        ({"pytorch_model.bin": POINTER}, r"pytorch_model\.bin is a Git LFS pointer"),
        ({"pytorch_model.bin.index.json": index("pytorch_model-1.bin")}, r"has no pytorch_model-1\.bin"),
    ],
)
class TestWeightsThatAreNotWhole:
    @pytest.fixture(autouse=True)
    def broken(self, published, files):
        for name in ("model.safetensors", "pytorch_model.bin"):
            (published / name).unlink()
        for name, content in files.items():
            (published / name).write_bytes(content)

    def test_a_download(self, made, reason, tmp_path):
        with pytest.raises(CheckpointInvalid, match=reason):
            made("{engine: vllm, model: someone/tiny}")
        assert not (tmp_path / "engine.tar").exists()

    def test_a_folder(self, made, reason, published):
        with pytest.raises(ConfigCheckFailed, match=f"E3201 .*{reason}"):
            made(f"{{engine: vllm, model: {published}}}")
