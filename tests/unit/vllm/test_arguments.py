"""The engine arguments that may be set: how values are checked, and how the table is made from vLLM's sources."""

import json
import subprocess
import sys

import pytest

from builder.check.source import check_source
from shared.layout import PROJECT_ROOT
from shared.vllm_arguments import FILE, table, wrong_arguments
from tools.vllm_arguments import __main__ as command
from tools.vllm_arguments.__main__ import changes, rendered
from tools.vllm_arguments.__main__ import table as made_from
from tools.vllm_arguments.policy import ALLOWED, CODE, MEMBERS, OWN, PACKAGES
from tools.vllm_arguments.source import Sources

ENGINE_ARGS = """
class EngineArgs:
    model: str = ModelConfig.model
    dtype: ModelDType = ModelConfig.dtype
    gpu_memory_utilization: float = CacheConfig.gpu_memory_utilization
    max_num_seqs: int | None = None
    max_lora_rank: Ranks = 16
    optimization_level: Level = 2
    attention_backend: Backend | None = AttentionConfig.backend
    eplb_config: EPLBConfig = get_field(ParallelConfig, "eplb_config")
    cudagraph_capture_sizes: "list[int] | None" = None
    scheduler_cls: str | type[object] | None = None
    brand_new: int = 3
"""
CONFIG = """
ModelDType = Literal["auto", "half"]
Ranks: TypeAlias = Literal[8, 16]
class Level(IntEnum):
    O0 = 0
    O1 = 1
class Backend(Enum):
    FLASH = "a.b.C"
class ModelConfig:
    model: str = "x"
    dtype: ModelDType | str = "auto"
class CacheConfig:
    gpu_memory_utilization: float = Field(default=0.92, gt=0, le=1)
class SchedulerConfig:
    max_num_seqs: int = Field(default=128, ge=1)
class AttentionConfig:
    backend: Backend | None = None
class EPLBConfig:
    window_size: int = Field(default=1000, gt=0)
    secret_sauce: str = ""
class ParallelConfig:
    eplb_config: EPLBConfig = Field(default_factory=EPLBConfig)
"""


@pytest.fixture
def sources(tmp_path):
    """A vLLM as small as can be, as it lies in site-packages."""
    for path, text in {
        "vllm/engine/arg_utils.py": ENGINE_ARGS,
        "vllm/config/all.py": CONFIG,
        "vllm-9.9.dist-info/METADATA": "Metadata-Version: 2.4\nName: vllm\nVersion: 9.9\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return Sources.read(tmp_path)


def told(**given):
    return [(".".join(one.place), one.kind, one.told) for one in wrong_arguments(given, code=False)]


def test_types_choices_and_ranges_come_from_the_sources(sources):
    made = made_from(sources)
    assert made["version"] == "9.9"
    assert made["arguments"] == {
        "gpu_memory_utilization": {"type": "float", "above": 0, "maximum": 1},
        "max_num_seqs": {"null": True, "type": "int", "minimum": 1},
        "max_lora_rank": {"type": "int", "choices": [8, 16]},
        "optimization_level": {"type": "int", "choices": [0, 1]},
        "attention_backend": {"null": True, "type": "str", "choices": ["FLASH"]},
        "eplb_config": {"type": "object", "members": {"window_size": {"type": "int", "above": 0}}},
        "cudagraph_capture_sizes": {"null": True, "type": "list"},
    }
    assert made["code"] == {"scheduler_cls": {"null": True, "type": "str"}}
    assert made["own"]["dtype"] == {"type": "str", "choices": ["auto", "half"], "key": "dtype"}
    assert made["others"] == ["brand_new"]


def test_what_nobody_has_looked_at_cannot_be_set(sources):
    lines = list(changes(table(), made_from(sources)))
    assert lines[0] == f"vLLM {table()['version']} -> 9.9"
    assert "new: brand_new (cannot be set; see tools/vllm_arguments/policy.py)" in lines
    assert "gone: watermark (name its successor in policy.py)" in lines
    assert any(line.startswith('changed: max_lora_rank: {"type": "int", "choices": [1, 8,') for line in lines)


def test_the_only_value_is_not_one_of_several():
    assert told(kv_offloading_backend="nativ") == [
        ("kv_offloading_backend", "invalid", "native (did you mean native?)")
    ]


def test_a_package_that_the_images_lack_is_told_of_values_that_this_vllm_has(sources):
    made = made_from(sources)["arguments"]["attention_backend"]
    assert "packages" not in made
    assert told(attention_backend=["HPC_ATTN"])[0][1] == "invalid"
    ((_, kind, why),) = told(attention_backend="HPC_ATTN")
    assert (kind, why.partition(" (")[2]) == (
        "invalid",
        "HPC_ATTN needs the package hpc-ops, which the images lack)",
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_what_needs_a_package_that_the_images_lack_cannot_be_set(package):
    lock = json.loads((PROJECT_ROOT / "nix/locks/wheels/engine-vllm.json").read_text())
    assert package not in {one["name"] for one in lock["wheels"]}, "remove it from PACKAGES"
    for argument, values in PACKAGES[package].items():
        name, _, member = argument.partition(".")
        spec = table()["arguments"].get(name) or table()["own"][name]
        choices = (spec["members"][member] if member else spec)["choices"]
        assert values.isdisjoint(choices)


@pytest.mark.parametrize("form", ["mistral", "pt", "sharded_state"])
def test_no_form_of_weights_can_be_set_that_no_archive_holds(form):
    ((place, kind, _),) = told(load_format=form)
    assert (place, kind) == ("load_format", "invalid")


@pytest.mark.parametrize("name", ["numa_bind", "numa_bind_cpus", "numa_bind_nodes"])
def test_what_needs_the_program_numactl_cannot_be_set(name):
    packages = json.loads((PROJECT_ROOT / "nix/locks/debian.json").read_text())
    assert '"numactl"' not in json.dumps(packages), "let policy.py allow it"
    ((place, kind, _),) = told(**{name: None})
    assert (place, kind) == (name, "refused")


def test_the_file_is_as_the_tool_writes_it():
    assert FILE.read_text() == rendered(json.loads(FILE.read_text()))


def test_the_table_has_all_that_the_policy_allows():
    assert table()["arguments"].keys() == ALLOWED
    assert table()["code"].keys() == CODE
    assert table()["own"].keys() == OWN.keys()
    for name, members in MEMBERS.items():
        assert (table()["arguments"] | table()["own"])[name]["members"].keys() == members


def test_values_that_are_taken():
    assert (
        told(
            gpu_memory_utilization=1,
            max_num_seqs=None,
            kv_cache_dtype="fp8",
            compilation_config={"mode": 3, "cudagraph_mode": "FULL"},
            trust_remote_code=False,
            hf_overrides={"rope_parameters": {"factor": 2.0}},
        )
        == []
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"max_num_seq": 1}, ("max_num_seq", "unknown", "max_num_seqs")),
        ({"xyzzy": 1}, ("xyzzy", "unknown", "")),
        ({"max_num_seqs": True}, ("max_num_seqs", "invalid", "a whole number of at least 1")),
        ({"max_num_seqs": 0}, ("max_num_seqs", "invalid", "a whole number of at least 1")),
        (
            {"num_gpu_blocks_override": 0},
            ("num_gpu_blocks_override", "invalid", "a whole number of at least 1"),
        ),
        ({"kv_cache_memory_bytes": -1}, ("kv_cache_memory_bytes", "invalid", "a whole number of at least 1")),
        ({"max_logprobs": -2}, ("max_logprobs", "invalid", "a whole number of at least -1")),
        ({"gpu_memory_utilization": 0}, ("gpu_memory_utilization", "invalid", "a number above 0, at most 1")),
        ({"enforce_eager": 1}, ("enforce_eager", "invalid", "true or false")),
        ({"enforce_eager": None}, ("enforce_eager", "invalid", "true or false")),
        (
            {"scheduling_policy": "prioritty"},
            ("scheduling_policy", "invalid", "one of fcfs, priority (did you mean priority?)"),
        ),
        (
            {"compilation_config": {"mod": 3}},
            ("compilation_config.mod", "unknown", "mode"),
        ),
        ({"swap_space": 4}, ("swap_space", "removed", "kv_offloading_size")),
        (
            {"speculative_draft_tensor_parallel_size": 1},
            (
                "speculative_draft_tensor_parallel_size",
                "removed",
                "speculative_config: {draft_tensor_parallel_size: ...}",
            ),
        ),
        (
            {"download_dir": "/models"},
            ("download_dir", "left out", "HF_HOME says where models of the hub are kept"),
        ),
    ],
)
def test_values_that_are_not(given, expected):
    assert told(**given) == [expected]


@pytest.mark.parametrize("name", sorted(CODE))
def test_code_by_name_needs_the_operator(name):
    value = {"bool": True, "str": "my.Class", "list": ["my.Class"], "object": {"a": "b"}}[
        table()["code"][name]["type"]
    ]
    ((_, kind, reason),) = told(**{name: value})
    assert kind == "refused"
    assert "ALLOW_MODEL_CODE=1" in reason
    assert list(wrong_arguments({name: value}, code=True)) == []


def test_a_wheel_that_cannot_be_fetched_is_told_in_the_words_of_pip(monkeypatch):
    def refused(_folder):
        raise subprocess.CalledProcessError(1, "pip", stderr="no such index\n")

    monkeypatch.setattr(command, "locked_wheel", refused)
    monkeypatch.setattr(sys, "argv", ["vllm_arguments"])
    with pytest.raises(SystemExit, match=r"^no such index$"):
        command.main()


def test_every_argument_of_an_earlier_release_is_known():
    earlier = json.loads((PROJECT_ROOT / "tools/vllm_arguments/earlier.json").read_text())
    unknown = [
        name for name in earlier["last_had"] if [wrong[1] for wrong in told(**{name: 1})] == ["unknown"]
    ]
    assert unknown == []


@pytest.mark.parametrize("instead", sorted({one for one in table()["removed"].values() if one}))
def test_what_is_written_in_the_place_of_a_removed_argument_exists(instead):
    name, _, member = instead.partition(": {")
    spec = (table()["arguments"] | table()["own"])[name]
    if name != "hf_overrides":  # passes to the model's config, whatever it is
        assert not member or member.partition(":")[0] in spec["members"]


def test_what_is_left_out_is_a_warning_for_a_config_too():
    report = check_source("data:,{engine: vllm, model: a/b, engine_args: {download_dir: /models}}")
    assert [(one.code, one.severity) for one in report.diagnostics] == [("E3039", "warning")]
