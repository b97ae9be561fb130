import pytest

from builder.engines.tensorrt_llm import scripts
from builder.engines.tensorrt_llm.old_arguments import RULES, Removed, Renamed
from builder.engines.tensorrt_llm.tables import table

TABLES = {
    "trtllm-build": table("trtllm-build"),
    "quantize.py": table("quantize.py"),
    **{
        f"convert_checkpoint.py {one}": table("convert_checkpoint.py", one)
        for one in ("llama", "gpt", "qwen")
    },
}


@pytest.mark.parametrize("name", TABLES)
def test_names_are_unique_and_choices_hold_the_default(name):
    arguments = TABLES[name].arguments
    names = [one for argument in arguments for one in (argument.name, *argument.aliases)]
    assert len(names) == len(set(names))
    for one in arguments:
        assert not one.choices or one.default is None or str(one.default) in one.choices


@pytest.mark.parametrize(
    ("name", "argument", "kind", "default"),
    [
        ("trtllm-build", "max_num_tokens", "int", 8192),
        ("trtllm-build", "max_decoder_seq_len", "int", None),
        ("trtllm-build", "weight_streaming", "flag", None),
        ("quantize.py", "awq_block_size", "int", 128),
        ("convert_checkpoint.py llama", "sq", "float", None),
        ("convert_checkpoint.py gpt", "nemo_rename_key", "str", None),
    ],
)
def test_some_facts(name, argument, kind, default):
    found = TABLES[name].find(argument)
    assert found is not None
    assert (found.type, found.default) == (kind, default)


def test_an_example_without_a_table_has_what_all_share():
    falcon = table("convert_checkpoint.py", "falcon")
    assert {"model_dir", "output_dir", "dtype", "tp_size", "workers"} <= set(falcon.names())
    assert falcon.find("gpt_variant") is None


def test_successors_exist():
    known = {name for one in TABLES.values() for name in one.names()}
    renamed = {rule.name for rules in RULES.values() for rule in rules.values() if isinstance(rule, Renamed)}
    assert renamed <= known


def test_what_is_to_be_set_in_another_step_exists_there():
    for name, rule in RULES["trtllm-build"].items():
        if isinstance(rule, Removed) and "set it in convert_to_ft or quantize" in rule.reason:
            assert all(TABLES[step].find(name) for step in ("convert_checkpoint.py llama", "quantize.py"))


@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("llama", "models/core/llama/convert_checkpoint.py"),
        ("mistral", "models/core/llama/convert_checkpoint.py"),
        ("models/contrib/falcon", "models/contrib/falcon/convert_checkpoint.py"),
        ("examples/gpt", "models/core/gpt/convert_checkpoint.py"),
    ],
)
def test_examples(name, script):
    example = scripts.example_of(name)
    assert example is not None
    assert scripts.converter(example) == script
