"""The builder's image, from locks in which stand-ins take the place of what this machine cannot reach."""

import pytest

from shared.cog.client import PredictionClient
from tests.support.images import (
    BUILDER,
    CPU,
    LIMITS,
    ROOT,
    build_image,
    container,
    podman,
    run,
    shared_directory,
)

CONFIG = "data:text/yaml,engine: ctranslate2\nmodel: /model"


@pytest.fixture(scope="module")
def image(tmp_path_factory, stand_in_locks):
    result = tmp_path_factory.mktemp("builder") / "result"
    build_image(BUILDER, result, COG_TRITON_LOCKS=str(stand_in_locks))
    run(result, "load")
    yield BUILDER
    podman("rmi", "--force", BUILDER)


def test_an_engine_built_in_a_container_is_served_in_one(image, cpu, demo, tmp_path_factory):
    engine = shared_directory(tmp_path_factory, "built")
    options = [f"--volume={ROOT / 'demo/model'}:/model:ro", "--volume=/src"]
    with container(image, *options) as builder:
        assert builder.wait_ready()["status"] == "READY"
        PredictionClient(builder.url).predict({"config": CONFIG})
        podman("container", "cp", f"{builder.name}:/src/engine.tar", engine / "engine.tar")
    run(cpu, "load")
    weights = [
        f"--volume={engine}:/engine:ro",
        "--volume=/var/cache/cog-triton",
        "--env=COG_WEIGHTS=/engine/engine.tar",
    ]
    with container(CPU, *weights) as runner:
        assert runner.wait_ready()["status"] == "READY"
        inputs = {"prompt": demo["prompt"], "max_tokens": demo["max_tokens"], "temperature": 0}
        assert "".join(PredictionClient(runner.url).text(inputs)) == demo["text"]


def test_it_carries_what_builds_tensorrt_engines(image):
    script = "cd /opt/cog-triton/engines/tensorrt_llm; ls bin/trtllm-build examples/quantization/quantize.py; mpirun --version"
    printed = podman("run", "--rm", *LIMITS, image, "bash", "-c", script).stdout
    assert "Open MPI" in printed
