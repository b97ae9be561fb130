"""The lock has what each of vLLM's models is made from: a newer transformers may have renamed it."""

from __future__ import annotations

from tests.vllm.conftest import run_script

# Left out of these tests (requirements/test-vllm.excludes.txt), or of vLLM itself, which leaves them to its users.
ABSENT = {"numba", "torchaudio", "terratorch", "timm"}


def test_every_model_can_be_imported(tmp_path):
    failed = run_script("tests/vllm/imported_models.py", tmp_path)
    assert {name: why for name, (package, why) in failed.items() if package not in ABSENT} == {}
