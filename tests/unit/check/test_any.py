"""Whatever is in a config, a check answers with findings."""

import json

from hypothesis import given
from hypothesis import strategies as st

from builder.check.report import check
from builder.engines.tensorrt_llm.tables import table

words = st.sampled_from(
    ["python", "trtllm-build", "convert_checkpoint.py", "hf_gpt_convert.py", "build.py", "quantize.py", "llama",
     "gpt", "./c", "/src/models/a/b", "..", "float16", "enable", ""]
)  # fmt: skip
values = st.none() | st.booleans() | st.integers() | st.floats() | words | st.text(max_size=9)
names = st.sampled_from(
    [
        *table("trtllm-build").names(),
        *table("quantize.py").names(),
        *table("convert_checkpoint.py", "llama").names(),
        "max_output_len", "in-file", "out-dir", "tensor-parallelism", "storage-type", "world_size",
    ]
)  # fmt: skip
step = st.fixed_dictionaries(
    {},
    optional={
        "executable": words,
        "script": words,
        "output_dir": words | values,
        "args": st.dictionaries(
            names | st.text(max_size=9), values | st.lists(values, max_size=3), max_size=6
        ),
    },
)
old = st.fixed_dictionaries(
    {"model_id": st.just("a/b")},
    optional={
        "example_name": words,
        "convert_to_ft": step,
        "quantize": step,
        "build": step | values,
        "revision": values,
    },
)
short = st.dictionaries(
    st.sampled_from(["model", "dtype", "quantization", "max_seq_len", "max_num_tokens", "revision", "x"]),
    values,
).map(lambda keys: {"engine": "tensorrt_llm", **keys})


@given(old | short)
def test_any_config(config):
    text = json.dumps(config)
    report = check(text, "c.yaml", gpus=1)
    assert report.config is not None or report.errors
    for one in report.diagnostics:
        assert (one.line, 1 <= one.column <= len(text)) == (1, True)
        assert one.what
        assert one.fix
    if not report.errors:
        assert all(isinstance(word, str) for call in report.calls for word in call.command().arguments)


@given(st.text(alphabet="model_idbu:{}[]&*!|>-'\"#%@` \n\t\x00é", max_size=80))
def test_any_text(text):
    for one in check(text, "c.yaml").diagnostics:
        assert 1 <= one.line <= text.count("\n") + 2
        assert one.column >= 1
