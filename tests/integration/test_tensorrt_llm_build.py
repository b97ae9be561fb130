"""Builds of TensorRT-LLM engines: everything of ours is real, the three tools are the stand-in."""

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from builder import pipeline
from builder.engines.tensorrt_llm import run
from builder.engines.tensorrt_llm.commands import RunTool
from builder.engines.tensorrt_llm.describe import Describe
from builder.engines.tensorrt_llm.run import ToolStep
from builder.package import Package
from builder.pipeline import build
from builder.plan import Plan
from builder.sources.download import Download
from builder.step import Build, Model
from shared.errors import (
    CheckpointInvalid,
    ConversionFailed,
    EngineEnvironmentBroken,
    EngineVersionMismatch,
    GpuMemoryExhausted,
    GpuNotFound,
    HostMemoryExhausted,
    NotEnoughSpace,
    NotSupportedOnGpu,
    PartNotInstalled,
    ToolArgumentsRefused,
    UnsupportedArchitecture,
)
from shared.layout import PROJECT_ROOT
from shared.progress import SilentProgress
from tests.support.hub import Hub, Repository
from tests.support.processes import MARK, descendants, is_alive, marked
from tests.support.tensorrt_llm.environments import fail, install
from tests.support.tensorrt_llm.large import build_of
from tests.support.tokenizers import distilgpt2
from tests.support.waiting import wait_for

DEMO = PROJECT_ROOT / "demo/model"
CONVERT = "models/core/llama/convert_checkpoint.py"
# Looked for in every process of the machine, where the same test may be running twice.
TOKEN = f"hf_do_not_tell_anyone_{secrets.token_hex(8)}"


def convert(*arguments, script=CONVERT):
    always = ("--model_dir", "model", "--output_dir", "checkpoint")
    return RunTool("convert_to_ft", "convert_checkpoint.py", script, always + arguments, "checkpoint")


def quantize(*arguments):
    always = ("--model_dir", "model", "--output_dir", "checkpoint")
    script = "quantization/quantize.py"
    return RunTool("quantize", "quantize.py", script, always + arguments, "checkpoint")


def compiling(*arguments):
    always = ("--checkpoint_dir", "checkpoint", "--output_dir", "trt/engine")
    return RunTool("build", "trtllm-build", None, always + arguments, "trt/engine")


class Builder:
    """Runs builds whose plan is given by hand."""

    def __init__(self, directory: Path, environment: Path, monkeypatch) -> None:
        self.environment = environment
        self.output = directory / "output/engine.tar"
        self.log = directory / "output/engine.tar.log"
        self.work_dir = directory / "work"
        self.output.parent.mkdir()
        self.work_dir.mkdir()
        self._monkeypatch = monkeypatch

    def __call__(self, *tools, model=str(DEMO), **options):
        steps = (Download(model), *map(ToolStep, tools), Describe(), Package("tensorrt_llm", {}))
        self._monkeypatch.setattr(pipeline, "make_plan", lambda *_: Plan("tensorrt_llm", steps))
        return build("data:,engine: mock", self.output, work_dir=self.work_dir, **options)

    def files(self) -> dict[str, bytes]:
        with tarfile.open(self.output) as archive:
            return {member.name: archive.extractfile(member).read() for member in archive}

    def left(self) -> list[str]:
        return sorted(path.name for path in (*self.work_dir.iterdir(), *self.output.parent.iterdir()))


@pytest.fixture
def builder(tmp_path, monkeypatch):
    environment = install(tmp_path / "home")
    monkeypatch.setenv("COG_TRITON_HOME", str(tmp_path / "home"))
    return Builder(tmp_path, environment, monkeypatch)


def test_an_engine_of_two_ranks(builder):
    manifest = builder(convert("--tp_size", "2"), compiling("--gemm_plugin", "auto"))
    assert (manifest.engine_version, manifest.tensorrt_llm_version) == ("1.2.1", "1.2.1")
    assert (manifest.tensorrt_version, manifest.cuda_version) == ("10.14.1.48.post1", "13.0.48")
    assert manifest.ranks == 2
    files = builder.files()
    assert sorted(name for name in files if name.startswith("engine/")) == [
        "engine/config.json",
        "engine/rank0.engine",
        "engine/rank1.engine",
    ]
    config = json.loads(files["engine/config.json"])
    assert config["version"] == "1.2.1"
    assert config["pretrained_config"]["mapping"]["tp_size"] == 2
    assert config["build_config"]["plugin_config"]["gemm_plugin"] == "auto"
    assert builder.left() == ["engine.tar", "engine.tar.log"]


@pytest.mark.parametrize(
    ("arguments", "algorithm"),
    [
        (("--qformat", "int4_awq", "--awq_block_size", "32"), "W4A16_AWQ"),
        (("--qformat", "fp8", "--kv_cache_dtype", "fp8"), "FP8"),
        (("--qformat", "int8_wo"), "W8A16"),
    ],
)
def test_a_quantized_engine(builder, arguments, algorithm):
    builder(quantize(*arguments), compiling("--gemm_plugin", "bfloat16"))
    config = json.loads(builder.files()["engine/config.json"])
    assert config["pretrained_config"]["quantization"]["quant_algo"] == algorithm


def test_two_builds_are_the_same_bytes(builder):
    steps = convert("--use_weight_only"), compiling()
    builder(*steps)
    first = builder.output.read_bytes()
    builder(*steps)
    assert builder.output.read_bytes() == first


def test_every_end_id_is_in_the_archive(builder, tmp_path):
    model = Path(shutil.copytree(DEMO, tmp_path / "model"))
    (model / "generation_config.json").write_text('{"eos_token_id": [7], "temperature": 0.6}')
    builder(convert(), compiling(), model=str(model))
    generation = json.loads(builder.files()["tokenizer/generation_config.json"])
    assert generation == {"eos_token_id": [7, 1], "temperature": 0.6}


def test_the_log_has_what_the_tools_said_and_took(builder):
    builder(convert(), compiling())
    log = builder.log.read_text()
    assert "== convert_to_ft: convert_checkpoint.py --model_dir model --output_dir checkpoint\n" in log
    assert "[TensorRT-LLM] TensorRT-LLM version: 1.2.1\n" in log
    assert "== build: ended with status 0 after " in log


def test_progress_counts_what_the_tools_have_written(builder):
    class Shown:
        def __init__(self):
            self.steps = {}

        @contextmanager
        def step(self, name):
            self.steps[name] = []
            yield lambda done, total=None: self.steps[name].append(done)

    shown = Shown()
    fail(builder.environment, "trtllm-build", "slow")
    builder(convert(), compiling(), progress=shown)
    assert max(shown.steps["build"]) > 0


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        ("killed", HostMemoryExhausted),
        ("crashes", ConversionFailed),
        ("gpu_memory", GpuMemoryExhausted),
        ("build_memory", GpuMemoryExhausted),
        ("no_gpu", GpuNotFound),
        ("no_driver", GpuNotFound),
        ("no_mpi", EngineEnvironmentBroken),
        ("symbol", EngineEnvironmentBroken),
        ("sm", NotSupportedOnGpu),
        ("disk_full", NotEnoughSpace),
        ("version", EngineVersionMismatch),
        ("worker", ConversionFailed),
    ],
)
def test_failures_are_coded_and_leave_nothing_but_the_log(builder, failure, error):
    fail(builder.environment, "trtllm-build", failure)
    with pytest.raises(error) as caught:
        builder(convert(), compiling())
    assert builder.left() == ["engine.tar.log"]
    assert "/opt/" not in str(caught.value)
    how = "signal SIG" if failure in {"killed", "crashes"} else "status "
    assert f"== build: ended with {how}" in builder.log.read_text()


def test_the_disk_that_the_log_fills_is_named_and_not_that_of_the_work_folder(builder, monkeypatch):
    monkeypatch.chdir(builder.output.parent)
    state = Build(builder.work_dir / "own", Path("engine.tar"), hf_token=None)
    state.work_dir.mkdir()
    state.model = Model("demo", None, DEMO)
    state.log.symlink_to("/dev/full")
    with pytest.raises(NotEnoughSpace, match=f'the step "build" filled {builder.output.parent}, which had '):
        pipeline.run_steps([ToolStep(compiling())], state, SilentProgress())


@pytest.mark.parametrize(
    ("tools", "error"),
    [
        ((convert(), compiling("--max_output_len", "5")), ToolArgumentsRefused),
        ((convert(), compiling("--streamingllm", "enable")), ToolArgumentsRefused),
        ((convert("--dtype", "float64"), compiling()), ToolArgumentsRefused),
        ((convert("--tp_size", "3"), compiling()), ToolArgumentsRefused),
        ((convert(script="models/core/gpt/convert_checkpoint.py"), compiling()), UnsupportedArchitecture),
        ((convert(), compiling("--dry_run")), ConversionFailed),
    ],
)
def test_what_the_tools_refuse_is_coded(builder, tools, error):
    with pytest.raises(error):
        builder(*tools)


def test_an_architecture_that_cannot_be_quantized_is_named(builder, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(DEMO, model)
    config = json.loads((model / "config.json").read_text())
    config |= {"architectures": ["FooForCausalLM"], "model_type": "foo"}
    (model / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedArchitecture, match="'FooForCausalLM'"):
        builder(quantize(), compiling(), model=str(model))


def test_a_home_that_cannot_be_written_to_is_replaced_and_nothing_is_left(builder, monkeypatch, tmp_path):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("HOME", "/nowhere")
    builder(quantize(), compiling())
    assert list(temporary.iterdir()) == []


def test_a_script_that_is_not_installed_is_named(builder):
    with pytest.raises(PartNotInstalled, match=r"examples/models/core/bert/convert_checkpoint\.py"):
        builder(convert(script="models/core/bert/convert_checkpoint.py"), compiling())


def test_weights_that_do_not_fit_the_config_are_refused(builder, tmp_path):
    model = Path(shutil.copytree(DEMO, tmp_path / "model"))
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"intermediate_size": 353}))
    with pytest.raises(CheckpointInvalid, match="not the same shape"):
        builder(convert(), compiling(), model=str(model))


def test_cancel_ends_every_process_of_a_tool_and_leaves_nothing_but_the_log(builder, monkeypatch):
    class Cancelling:
        """Cancels the build once the tool has started its own processes."""

        @contextmanager
        def step(self, name):
            def show(done, total=None):
                if name == "build" and len(marked(mark)) == 4:  # with the guard
                    raise KeyboardInterrupt

            yield show

    mark = os.urandom(8).hex()
    monkeypatch.setattr(run, "_PASSED_ON", (*run._PASSED_ON, MARK))
    monkeypatch.setenv(MARK, mark)
    fail(builder.environment, "trtllm-build", "hangs")
    with pytest.raises(KeyboardInterrupt):
        builder(convert(), compiling(), progress=Cancelling())
    assert marked(mark) == {}
    assert builder.left() == ["engine.tar.log"]


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub in the place of the real one."""
    with Hub() as hub:
        template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
        yield hub


@pytest.mark.parametrize(
    ("example", "model"),
    [
        ("llama/llama-2-7b-chat-1gpu", "meta-llama/Llama-2-7b-chat-hf"),
        ("llama/llama-2-7b-chat-int8-1gpu", "meta-llama/Llama-2-7b-chat-hf"),
        ("mistral/mistral-7b-instruct", "mistralai/Mistral-7B-Instruct-v0.2"),
    ],
)
def test_an_example_builds_from_config_to_archive(builder, hub, example, model):
    """With a small model under the name of the large one; a second build downloads nothing."""
    hub.repositories[model] = Repository(DEMO)
    config = str(PROJECT_ROOT / f"examples/{example}.yaml")
    manifest = build(config, builder.output, work_dir=builder.work_dir)
    assert (manifest.model, manifest.revision) == (model, hub.repositories[model].commit)
    first = builder.output.read_bytes()
    hub.requests.clear()
    build(config, builder.output, work_dir=builder.work_dir)
    assert hub.file_requests() == []
    assert builder.output.read_bytes() == first


def test_the_first_example_builds_a_model_without_tokenizer_json(builder, hub, tmp_path):
    """As many models of GPT-2's kind on the hub, though not the example's. The converter is the real one."""
    (tmp_path / "home/tokenizer-converter").symlink_to(PROJECT_ROOT / ".build/tokenizer-converter")
    published = distilgpt2(tmp_path / "published")
    (published / "tokenizer.json").unlink()
    hub.repositories["distilbert/distilgpt2"] = Repository(published)
    build(str(PROJECT_ROOT / "examples/gpt/config.yaml"), builder.output, work_dir=builder.work_dir)
    files = builder.files()
    assert json.loads(files["engine/config.json"])["pretrained_config"]["architecture"] == "GPTForCausalLM"
    assert json.loads(files["tokenizer/tokenizer.json"])["model"]["type"] == "BPE"
    assert json.loads(files["tokenizer/generation_config.json"])["eos_token_id"] == [1]
    assert builder.left() == ["engine.tar", "engine.tar.log"]


def test_the_token_is_nowhere(builder, hub, monkeypatch, tmp_path, capfd):
    """Not in a log, not in the process list or an environment, not in what is written."""
    seen = []
    done = threading.Event()

    def watch():
        while not done.is_set():
            for process in Path("/proc").glob("[0-9]*"):
                if process.name == str(os.getpid()):
                    continue
                try:
                    seen.append((process / "cmdline").read_bytes() + (process / "environ").read_bytes())
                except OSError:
                    continue
            time.sleep(0.01)

    watcher = threading.Thread(target=watch)
    hub.repositories["demo/private"] = Repository(DEMO, token=TOKEN)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    watcher.start()
    try:
        builder(convert(), compiling(), model="demo/private", hf_token=TOKEN)
    finally:
        done.set()
        watcher.join()
    assert hub.tokens == {TOKEN}
    assert any(b"trtllm-build" in process for process in seen)
    assert not any(TOKEN.encode() in process for process in seen)
    assert TOKEN not in "".join(capfd.readouterr())
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in written if TOKEN.encode() in path.read_bytes()]


def test_no_engine_is_held_in_memory_and_each_byte_moves_once(tmp_path):
    built = build_of(tmp_path, 400_000_000)
    assert built["size"] > 350_000_000
    assert built["peak"] < 150_000_000
    assert built["read"] < 1.01 * built["size"]
    assert built["written"] < 1.01 * built["size"]


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_the_command_ends_its_tools_however_it_ends(builder, tmp_path, end):
    fail(builder.environment, "trtllm-build", "hangs")
    mark = os.urandom(8).hex()
    config = json.dumps({"engine": "tensorrt_llm", "model": str(DEMO)})
    environment = {**os.environ, MARK: mark, "TMPDIR": str(builder.work_dir)}
    program = str(Path(sys.executable).with_name("cog-triton"))
    command = [program, "build", f"data:,{config}", "-o", str(builder.output)]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    wait_for(lambda: "Build TensorRT engine" in (tmp_path / "log").read_text())
    wait_for(lambda: len(descendants(process.pid)) == 4)
    started = descendants(process.pid)
    process.send_signal(end)
    assert process.wait(30) == (-end if end == signal.SIGKILL else 128 + end)
    wait_for(lambda: not [pid for pid in started if is_alive(pid)])
    if end != signal.SIGKILL:
        assert builder.left() == ["engine.tar.log"]
