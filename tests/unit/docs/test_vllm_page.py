"""docs/vllm.md lists what Triton's form of the vLLM engine refuses."""

import re

from runner.protocol.vllm import _NEUTRAL
from shared.layout import PROJECT_ROOT


def test_every_refused_sampling_parameter_is_listed():
    page = (PROJECT_ROOT / "docs/vllm.md").read_text()
    (listed,) = re.findall(r"- Images and embeddings are E2404(.*?)\n- ", page, re.DOTALL)
    assert re.findall(r"`(\w+)`", listed) == sorted(_NEUTRAL)
