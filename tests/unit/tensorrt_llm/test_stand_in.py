"""The tools' own parsers take what is planned for them."""

from pathlib import PurePosixPath

import pytest

from builder.engines.tensorrt_llm.run import ToolStep
from builder.plan import make_plan
from shared.config import load_config
from shared.layout import PROJECT_ROOT
from tests.support.tensorrt_llm import arguments

CONVERTERS = {
    "llama": arguments.convert_llama,
    "gpt": arguments.convert_gpt,
    "qwen": arguments.convert_qwen,
}
EXAMPLES = sorted(path for path in (PROJECT_ROOT / "examples").rglob("*.yaml") if path.parent.name != "vllm")


def parser(tool):
    if tool.tool == "trtllm-build":
        return arguments.trtllm_build()
    if tool.tool == "quantize.py":
        return arguments.quantize()
    return CONVERTERS[PurePosixPath(tool.script).parent.name]()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_taken(example):
    plan = make_plan(load_config(example.read_text(), example.name))
    tools = [step.tool for step in plan.steps if isinstance(step, ToolStep)]
    assert tools
    for tool in tools:
        assert parser(tool).parse_args(tool.arguments).output_dir == tool.output_dir
