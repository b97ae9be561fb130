"""Stands in for transformers: its models are computed by the reference of the tests."""

from pathlib import Path
from types import SimpleNamespace

from tests.reference.llama import Reference


class AutoModelForCausalLM:
    def __init__(self, directory: str) -> None:
        self._reference = Reference(Path(directory))

    @classmethod
    def from_pretrained(cls, directory: str, *, torch_dtype: str) -> "AutoModelForCausalLM":
        assert torch_dtype == "float32"
        return cls(directory)

    def __call__(self, ids):
        return SimpleNamespace(logits=[self._reference.logits([int(token) for token in ids[0]])])
