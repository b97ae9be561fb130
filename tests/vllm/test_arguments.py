"""The table of engine arguments against the real vLLM: what it says is what vLLM's own sources say."""

from __future__ import annotations

from shared.vllm_arguments import table
from tests.vllm.conftest import PYTHON
from tools.vllm_arguments.__main__ import table as made_from
from tools.vllm_arguments.source import Sources


def test_the_table_is_that_of_the_version_in_the_lock():
    (packages,) = (PYTHON.parent.parent / "lib").glob("python3.*/site-packages")
    assert made_from(Sources.read(packages)) == table(), "run `make vllm-arguments`"
