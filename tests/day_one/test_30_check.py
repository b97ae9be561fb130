"""`cog-triton check` finds in a second what a build of hours, or the start on a GPU, would find."""

from __future__ import annotations

import pytest

from shared.cog.server import free_port

CONFIG = """\
engine: tensorrt_llm
model: HuggingFaceTB/SmolLM2-135M-Instruct
instantiate:
  server:
    tensorrt_llm:
      args:
"""


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("kv_cache_free_gpu_mem_fraction: 7", "error: E2505 ServerParameterInvalid: "),
        ("batching_strategy: whenever", "error: E2505 ServerParameterInvalid: "),
        ("kv_cache_free_gpu_memory_fraction: 0.8", "warning: E3006 ConfigKeyUnknown: "),
    ],
)
def test_server_arguments_are_checked(user, argument, says):
    user.write("llama.yaml", f"{CONFIG}        {argument}\n")
    checked = user.types("cog-triton check llama.yaml", status=1 if says.startswith("error") else 0)
    (line,) = [line for line in checked.text.splitlines() if line.startswith("llama.yaml:7:9: ")]
    assert says in line
    assert argument.partition(":")[0] in line


def test_a_build_is_refused_for_them_too(user):
    user.write("llama.yaml", f"{CONFIG}        kv_cache_free_gpu_mem_fraction: 7\n")
    refused = user.types("cog-triton build llama.yaml -o llama.tar", status=1)
    assert refused.errors.startswith("E3010 ConfigCheckFailed: ")
    assert "line 7: E2505 " in refused.errors


def test_and_so_is_an_image_that_would_not_start(user):
    """Also where nothing is built: a file with the section `instantiate` alone."""
    section = CONFIG[CONFIG.index("instantiate:") :]
    user.write("image.yaml", f"{section}        kv_cache_free_gpu_mem_fraction: 7\n")
    assert "image.yaml:5:9: error: E2505 " in user.types("cog-triton check image.yaml", status=1).text
    command = "cog-triton instantiate image.yaml --base localhost:1/runner --dest localhost:1/model"
    assert user.types(command, status=1).errors.startswith("E2505 ServerParameterInvalid: ")


OFFICIAL = """\
build:
  config: models/llama/build_config.yaml
instantiate:
  prompt_template: "[INST] {prompt} [/INST]"
  server:
    tensorrt_llm:
      args:
        decoupled_mode: True
        batching_strategy: inflight_fused_batching
        max_queue_delay_microseconds: 100
"""


def test_a_build_config_counts_from_the_address_of_the_config_that_names_it(user):
    """As those of official models do, which are in a repository that is read over HTTP."""
    user.write("site/models/llama/config.yaml", OFFICIAL)
    user.write("site/models/llama/build_config.yaml", "engine: mock\n")
    user.variables["SITE"] = f"localhost:{free_port()}"
    port = user.variables["SITE"].partition(":")[2]
    user.starts(
        f"python -m http.server {port} --directory site", "$SITE/models/llama/config.yaml", says="build"
    )
    checked = user.types("cog-triton check http://$SITE/models/llama/config.yaml")
    assert "0 errors, 0 warnings" in checked.text


def test_and_it_is_built_from_there(user):
    user.types("cog-triton build http://$SITE/models/llama/config.yaml -o official.tar")
    assert "mock" in user.types("cog-triton inspect official.tar").text
