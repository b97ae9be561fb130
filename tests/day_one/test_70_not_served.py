"""What is not served says so where one looks."""

from __future__ import annotations

import pytest

BACKENDS = {"preprocessing": "python", "postprocessing": "python", "tensorrt_llm": "tensorrtllm"}


@pytest.fixture(scope="module", autouse=True)
def repository(user):
    """As NVIDIA's template leaves it, filled in: an engine in its place, and models around it."""
    for model, backend in BACKENDS.items():
        user.write(f"triton_model_repo/{model}/config.pbtxt", f'name: "{model}"\nbackend: "{backend}"\n')
    user.write("triton_model_repo/ensemble/config.pbtxt", 'name: "ensemble"\nplatform: "ensemble"\n')
    user.write("triton_model_repo/tensorrt_llm/1/config.json", "{}")


@pytest.mark.parametrize(
    "command",
    [
        "cog-triton serve triton_model_repo --port $PORT",
        "cog-triton inspect triton_model_repo",
        "cog-triton model-repository --engine triton_model_repo --out models",
    ],
)
def test_nvidias_model_repository_is_told_with_what_to_serve_instead(user, command):
    (last,) = user.types(command, status=1).errors.splitlines()[-1:]
    assert last.startswith("E4106 ModelRepositoryNotServed: ")
    assert "(python, tensorrtllm)" in last
    assert "triton_model_repo/tensorrt_llm/1," in last


def test_the_page_about_serving_says_so(user):
    assert "inflight_batcher_llm" in user.types("grep inflight_batcher_llm docs/serving.md").text
