"""The table of engine arguments against the wheel in the lock: what it says is what vLLM's own sources say."""

from __future__ import annotations

from shared.vllm_arguments import table
from tools.vllm_arguments.__main__ import locked_wheel
from tools.vllm_arguments.__main__ import table as made_from
from tools.vllm_arguments.source import Sources


def test_the_table_is_that_of_the_version_in_the_lock(tmp_path):
    """Fetches the wheel: there may be no build for CPUs of that version."""
    assert made_from(Sources.read(locked_wheel(tmp_path))) == table(), "run `make vllm-arguments`"
