"""A failing tool of TensorRT-LLM is reported in one line, with what went wrong and not the program's source.

Stand-ins of the tools raise as those do; see tests/support/tensorrt_llm.
"""

from __future__ import annotations

import json
import shutil

import pytest

from tests.support.images import ROOT
from tests.support.tensorrt_llm.environments import install


@pytest.fixture(scope="module", autouse=True)
def tools(user, tmp_path_factory):
    home = tmp_path_factory.mktemp("installation")
    install(home)
    user.variables["COG_TRITON_HOME"] = str(home)


CONFIG = """\
model_id: ./model
example_name: llama
convert_to_ft:
  script: convert_checkpoint.py
  output_dir: checkpoint
  args:
    model_dir: /src/models/model
    output_dir: checkpoint
    tp_size: {ranks}
build:
  executable: trtllm-build
  output_dir: engine
  args:
    checkpoint_dir: checkpoint
    output_dir: engine
"""


def test_a_model_that_no_example_converts(user):
    shutil.copytree(ROOT / "demo/model", user.folder / "model")
    config = json.loads((ROOT / "demo/model/config.json").read_text())
    user.write("model/config.json", json.dumps(config | {"architectures": ["FooForCausalLM"]}))
    user.write("foo.yaml", CONFIG.format(ranks=1))
    (last,) = user.types("cog-triton build foo.yaml -o foo.tar", status=1).errors.splitlines()[-1:]
    assert last.startswith(
        "E3200 UnsupportedArchitecture: The architecture 'FooForCausalLM' cannot be converted;"
    )


def test_tensors_that_do_not_divide(user):
    shutil.copy(ROOT / "demo/model/config.json", user.folder / "model/config.json")
    user.write("foo.yaml", CONFIG.format(ranks=5))
    (last,) = user.types("cog-triton build foo.yaml -o foo.tar", status=1).errors.splitlines()[-1:]
    assert last.startswith("E3206 ToolArgumentsRefused: ")
    assert "ValueError: 128 is not divisible by tp_size 5. " in last
    assert "{" not in last
    assert "raise" not in last
