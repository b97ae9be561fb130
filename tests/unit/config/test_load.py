import json
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from shared.config import (
    ENGINES,
    CogTRTLLMConfig,
    CTranslate2Config,
    MockConfig,
    OfficialConfig,
    TensorRTLLMConfig,
    VLLMConfig,
    dump_config,
    load_config,
)
from shared.errors import ConfigInvalid

NAMES = ", ".join(ENGINES)

OFFICIAL = """\
engine: tensorrt_llm
model: https://weights.example/model.tar
instantiate:
  base_model: registry.example/cog-triton@sha256:4c42
  staging_dest: registry.example/staging
  weights: https://weights.example/engine.tar
  system_prompt: You are helpful.
  prompt_template: <s>[INST] {system_prompt} {prompt} [/INST]
  stop_sequences: ["</s>", "a, b"]
  server:
    preprocessing:
      args:
        tokenizer_type: auto
        preprocessing_instance_count: 64
    tensorrt_llm:
      args:
        decoupled_mode: True
        kv_cache_free_gpu_mem_fraction: 0.95
        batching_strategy:
    tensorrt_llm_bls:
      args:
        accumulate_tokens: "true"
"""


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigInvalid) as caught:
        load_config(text, "c.yaml")
    assert str(caught.value).startswith("E3004 ConfigInvalid: The config c.yaml cannot be used: ")
    return str(caught.value.details["reason"]).split("; ")


def test_defaults_of_ctranslate2():
    config = load_config("engine: ctranslate2\nmodel: org/name", "c")
    assert config == CTranslate2Config(
        engine="ctranslate2",
        model="org/name",
        revision=None,
        instantiate=None,
        quantization="float32",
        parallel_requests=None,
        threads_per_request=1,
        max_seq_len=None,
    )


def test_defaults_of_mock():
    config = load_config("engine: mock", "c")
    assert config == MockConfig(
        engine="mock",
        model=None,
        revision=None,
        instantiate=None,
        tokens_per_second=100,
        time_to_first_token=0,
        step_seconds=0,
        max_batch_size=None,
        max_seq_len=4096,
    )


def test_gpu_engines():
    assert isinstance(
        load_config("engine: tensorrt_llm\nmodel: a/b\nquantization: fp8", "c"), TensorRTLLMConfig
    )
    vllm = load_config("engine: vllm\nmodel: a/b\nengine_args: {seed: 1, nested: {a: [1]}}", "c")
    assert isinstance(vllm, VLLMConfig)
    assert vllm.engine_args == {"seed": 1, "nested": {"a": [1]}}


def test_instantiate_section():
    section = load_config(OFFICIAL, "c").instantiate
    assert section is not None
    assert section.stop_sequences == ("</s>", "a, b")
    assert section.server is not None
    assert section.server.tensorrt_llm is not None
    assert section.server.tensorrt_llm.args == {
        "decoupled_mode": True,
        "kv_cache_free_gpu_mem_fraction": 0.95,
        "batching_strategy": None,
    }
    assert section.server.ensemble is None


def test_the_forms_are_told_apart():
    old = load_config("model_id: a/b\nbuild: {output_dir: o}", "c")
    official = load_config("build: {config: c.yaml}\ninstantiate: {}", "c")
    assert (type(old), type(official)) == (CogTRTLLMConfig, OfficialConfig)


def test_arguments_are_kept_as_written():
    text = "model_id: a/b\nbuild: {output_dir: o, args: {a: , b: 1, c: 0.5, d: [x, 2], e: false}}"
    config = load_config(text, "c")
    assert isinstance(config, CogTRTLLMConfig)
    assert config.build.args == {"a": None, "b": 1, "c": 0.5, "d": ("x", 2), "e": False}
    assert load_config(json.dumps(dump_config(config)), "config.json") == config


def test_an_old_token_is_read_and_never_written():
    config = load_config("model_id: a/b\nhf_token: hf_x\nmerge: true\nbuild: {output_dir: o}", "c")
    assert "hf_x" not in json.dumps(dump_config(config))
    assert "hf_x" not in repr(config)


def test_what_is_said_of_a_number_that_is_too_large_is_a_sentence():
    """It was "is too far from 0, not 1e+30"."""
    with pytest.raises(ConfigInvalid, match=r"line 2: max_seq_len: is too far from 0\."):
        load_config("engine: mock\nmax_seq_len: 1.0e+30", "c")


def test_configs_are_frozen():
    config = load_config("engine: mock", "c")
    with pytest.raises(ValidationError):
        config.model = "other"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("model: a/b", f"engine: missing; it is one of {NAMES}"),
        ("model_id: a/b\nbuild: {}", "build.output_dir: missing"),
        ("model_id: a/b\nbuild: 3", "line 2: build: must be a mapping, not 3"),
        (
            "model_id: a/b\nbuild: {output_dir: o, args: {a: {b: 1}}}",
            "line 2: build.args.a: must be a single value, or a list of them",
        ),
        (
            "model_id: a/b\nbuild: {output_dir: o, args: {'': 1}}",
            "line 2: build.args.'': must not be empty",
        ),
        (
            'model_id: a/b\nbuild: {output_dir: o, args: {a: ["b\\0c"]}}',
            "line 2: build.args.a: must be one line without control characters",
        ),
        (
            "model_id: a/b\nbuild: {output_dir: o, arg: {}}",
            "line 2: build.arg: unknown key (did you mean args?)",
        ),
        (
            "model_id: a/b\nmodel_tar_url: m.tar\nbuild: {output_dir: o}",
            "line 2: model_tar_url: must be an http or https URL",
        ),
        ("build: {config: c.yaml}", "instantiate: missing"),
        (
            "engine: mocc",
            f"line 1: engine: must be one of {NAMES}, not 'mocc' (did you mean mock?)",
        ),
        ("engine: [mock]", f"engine: must be one of {NAMES}, not a list"),
        ("engine:", f"engine: must be one of {NAMES}, not null"),
        ("engine: ctranslate2", "model: missing"),
        ("engine: mock\nmax_seqlen: 1", "line 2: max_seqlen: unknown key (did you mean max_seq_len?)"),
        (
            "engine: mock\nzzz: 1",
            "line 2: zzz: unknown key (known here: engine, model, revision, instantiate",
        ),
        (
            "engine: ctranslate2\nmodel: a/b\nquantization: int9",
            "line 3: quantization: must be one of float32, int8, not 'int9' (did you mean int8?)",
        ),
        ("engine: mock\nmax_seq_len: 1", "line 2: max_seq_len: must be greater than or equal to 2, not 1"),
        ("engine: mock\nmax_seq_len: '9'", "max_seq_len: must be a whole number, not '9'"),
        ("engine: mock\nmax_seq_len: true", "max_seq_len: must be a whole number, not true"),
        ("engine: mock\ntokens_per_second: 0", "tokens_per_second: must be greater than 0, not 0"),
        ("engine: mock\ntokens_per_second: fast", "tokens_per_second: must be a number, not 'fast'"),
        ("engine: mock\nrevision: 12", "line 2: revision: must be text, not 12 (write it in quotes)"),
        ("engine: mock\nrevision: {a: 1}", "line 2: revision: must be text, not a mapping"),
        ("engine: mock\nmodel: ''", "line 2: model: must not be empty"),
        ("engine: mock\nmodel: http://[x/y", "line 2: model: is not a valid URL"),
        (
            "engine: vllm\nmodel: a/b\ntriton_model: a b",
            "line 3: triton_model: must match pattern '^[A-Za-z0-9_.-]+$', not 'a b'",
        ),
        ('engine: mock\nmodel: "a\\nb"', "line 2: model: must be one line without control characters"),
        (
            "engine: mock\nmodel: s3://a/b",
            "line 2: model: must be the name of a model on the hub, an http or",
        ),
        (
            "engine: mock\nmodel: 'https:///b'",
            "line 2: model: must be the name of a model on the hub, an http or",
        ),
        (
            "engine: mock\nmodel: https://a/b.tar\nrevision: main",
            "line 3: revision: must be omitted: only models on the hub have revisions",
        ),
        (
            "engine: mock\nmodel: a/b\nrevision: refs/../x",
            "line 3: revision: must be a commit, or",
        ),
        ("model_id: a/b\nrevision: ../x\nbuild: {output_dir: e}", "line 2: revision: must be a commit, or a"),
        (
            "engine: vllm\nmodel: a/b\nspeculative_config: {model: a/c, revision: ../../x}",
            "line 3: speculative_config: has an invalid revision: it must be a commit, or a name",
        ),
        (
            "engine: vllm\nmodel: a/b\nspeculative_config: {model: a/c, revision: [/../x]}",
            "line 3: speculative_config: has an invalid revision: it must be a commit, or a name",
        ),
        ("engine: mock\ninstantiate: 3", "line 2: instantiate: must be a mapping, not 3"),
        (
            "engine: mock\ninstantiate:\n  stop_sequences: x",
            "line 3: instantiate.stop_sequences: must be a list, not 'x'",
        ),
        (
            "engine: mock\ninstantiate:\n  stop_sequences:\n  - a\n  - ''",
            "line 5: instantiate.stop_sequences.1: ",
        ),
        (
            "engine: mock\ninstantiate:\n  server: {tensorrt_llm: {arg: {}}}",
            "line 3: instantiate.server.tensorrt_llm.arg: unknown key (did you mean args?)",
        ),
        (
            "engine: mock\ninstantiate:\n  server: {ensemble: {args: {a: [1]}}}",
            "line 3: instantiate.server.ensemble.args.a: must be a single value",
        ),
        ("engine: vllm\nmodel: a/b\nengine_args: 1", "line 3: engine_args: must be a mapping, not 1"),
        ('engine: mock\n"a\\nb": 1', "line 2: 'a\\nb': unknown key"),
    ],
)
def test_a_problem_says_where_what_and_what_would_be_right(text, problem):
    assert problem in "; ".join(problems(text))


def test_all_problems_are_reported_at_once_in_the_order_of_lines():
    text = "engine: ctranslate2\nquantisation: int8\nthreads_per_request: 0\nmax_seq_len: x\n"
    assert [problem.split(": ")[:2] for problem in problems(text)] == [
        ["model", "missing"],
        ["line 2", "quantisation"],
        ["line 3", "threads_per_request"],
        ["line 4", "max_seq_len"],
    ]


def test_many_problems_are_counted():
    found = problems("engine: mock\n" + "".join(f"k{n}: 1\n" for n in range(25)))
    assert found[19].startswith("line 21: k19: ")
    assert found[20:] == ["and 5 more"]


@pytest.mark.parametrize(
    "text",
    [
        "engine: mock\nhf_token: hf_abc",
        "engine: vllm\nmodel: a/b\nengine_args: {hf_token: hf_abc}",
        "engine: vllm\nmodel: a/b\nengine_args: {x: [{api_key: hf_abc}]}",
        "engine: mock\ninstantiate: {server: {ensemble: {args: {password: hf_abc}}}}",
    ],
)
def test_secrets_are_refused_and_not_repeated(text):
    (problem,) = problems(text)
    assert problem.endswith(": a secret must not be in a config: remove it")
    assert "hf_abc" not in problem


def test_long_values_are_not_repeated():
    (problem,) = problems(f"engine: ctranslate2\nmodel: a/b\nquantization: {'x' * 100}")
    assert problem == "line 3: quantization: must be one of float32, int8"


def test_dumped_addresses_hold_no_secrets():
    text = "engine: mock\nmodel: https://u:pw@a/b.tar?sig=1\ninstantiate:\n  weights: https://a/e.tar?sig=2"
    config = load_config(text, "c")
    assert config.model == "https://u:pw@a/b.tar?sig=1"
    dumped = dump_config(config)
    assert dumped["model"] == "https://a/b.tar"
    assert "sig=2" not in json.dumps(dumped)


def is_revision(name):
    try:
        load_config(json.dumps({"engine": "mock", "revision": name}), "c")
    except ConfigInvalid:
        return False
    return True


texts = st.text(min_size=1).filter(str.isprintable)


@pytest.mark.parametrize(
    "revision",
    [
        "main",
        "v1.0",
        "refs/pr/1",
        "feature/x",
        "feature/v1.0-rc.1+cu_12",
        "a" * 40,
        "0a1b2c3",
        "größer",
        "a@b#c",
    ],
)
def test_names_of_branches_tags_and_commits_are_revisions(revision):
    assert is_revision(revision)


@given(
    st.lists(st.sampled_from(["a", "lock", ".lock", *"./@{-é~^:?*[\\ \x7f"]), min_size=1, max_size=5).map(
        "".join
    )
)
def test_a_revision_is_what_git_takes(name):
    taken = subprocess.run(["git", "check-ref-format", f"refs/heads/{name}"], check=False).returncode == 0
    assert is_revision(name) == taken


@given(
    st.fixed_dictionaries(
        {"engine": st.just("mock")},
        optional={
            "tokens_per_second": st.floats(0, 1e6, exclude_min=True),
            "max_seq_len": st.integers(2, 1 << 24),
            "revision": texts.filter(is_revision),
            "instantiate": st.fixed_dictionaries(
                {}, optional={"system_prompt": st.text(), "stop_sequences": st.lists(st.text(min_size=1))}
            ),
        },
    )
)
def test_a_dumped_config_loads_as_the_same(data):
    config = load_config(json.dumps(data), "c")
    dumped = json.dumps(dump_config(config))
    assert load_config(dumped, "config.json") == config


def test_the_official_shape_survives_a_dump():
    config = load_config(OFFICIAL, "c")
    assert load_config(json.dumps(dump_config(config)), "config.json") == config
