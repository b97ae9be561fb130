"""What is reported when Triton, or the preparation of the engine, ends: its own coded error, or its output."""

from __future__ import annotations

from runner.lifecycle.supervisor import _coded
from shared.errors import TritonFailedToStart


def test_a_text_without_a_code_is_the_reason():
    error = _coded("Segmentation fault")
    assert isinstance(error, TritonFailedToStart)
    assert "Segmentation fault" in str(error)


def test_a_coded_text_stays_what_it_is():
    error = _coded(str(TritonFailedToStart(reason="it ended with status 1")))
    assert str(error) == str(TritonFailedToStart(reason="it ended with status 1"))
