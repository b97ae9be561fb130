"""The builder's image, from locks in which stand-ins take the place of what this machine cannot reach."""

import hashlib
import json
from pathlib import Path

import httpx2
import pytest

from demo.cog_client import PredictionClient
from shared.artifact import read_manifest
from tests.support.hub import Hub, Repository
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
from tests.support.tensorrt_llm import environments
from tests.support.tokenizers import distilgpt2

CONFIG = "data:text/yaml,engine: ctranslate2\nmodel: /model"


@pytest.fixture(scope="module")
def image(tmp_path_factory, stand_in_locks):
    result = tmp_path_factory.mktemp("builder") / "result"
    build_image(BUILDER, result, COG_TRITON_LOCKS=str(stand_in_locks))
    run(result, "load")
    yield BUILDER
    podman("rmi", "--force", podman("image", "inspect", BUILDER, "--format={{.Id}}").stdout.strip())


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


@pytest.mark.parametrize("engine", ["ctranslate2", "tensorrt_llm", "vllm"])
def test_two_builds_are_the_same_bytes(image, engine, tmp_path_factory):
    """TensorRT-LLM's tools are the tests' stand-ins, in place of the image's; vLLM needs none."""
    directory = shared_directory(tmp_path_factory, "environment")
    installed = Path("/opt/cog-triton/engines")
    numpy = installed / "ctranslate2/lib/python3.13/site-packages"
    environments.make(directory / "made", Path("/usr/bin/python3.13"), "3.13", ["/stand-in", str(numpy)])
    options = [
        f"--volume={ROOT / 'demo/model'}:/model:ro",
        f"--volume={environments.SUPPORT}:/stand-in:ro",
        f"--volume={directory / 'made'}:{installed / 'tensorrt_llm'}:ro",
        "--volume=/src",
    ]
    config = f"data:application/json,{json.dumps({'engine': engine, 'model': '/model'})}"
    built = set()
    with container(image, *options) as builder:
        builder.wait_ready()
        for count in range(2):
            PredictionClient(builder.url).predict({"config": config})
            podman("container", "cp", f"{builder.name}:/src/engine.tar", directory / f"{count}.tar")
            built.add(hashlib.sha256((directory / f"{count}.tar").read_bytes()).hexdigest())
    assert len(built) == 1
    with (directory / "0.tar").open("rb") as archive:
        manifest = read_manifest(archive)
    assert manifest.engine == engine
    assert manifest.model == "model"


def test_what_the_image_is_told_and_given_by_its_user(image, tmp_path_factory):
    """An example of the image, the token of its environment, the hub's cache where it is mounted into images
    whose user is root, and a folder of the host for the engine. Its model is put there without tokenizer.json.
    """
    directory = shared_directory(tmp_path_factory, "user")
    numpy = Path("/opt/cog-triton/engines/ctranslate2/lib/python3.13/site-packages")
    environments.make(directory / "made", Path("/usr/bin/python3.13"), "3.13", ["/stand-in", str(numpy)])
    for name in ("cache", "out"):
        (directory / name).mkdir()
        (directory / name).chmod(0o777)
    with Hub() as hub:
        model = distilgpt2(directory / "model")
        (model / "tokenizer.json").unlink()
        hub.repositories["distilbert/distilgpt2"] = Repository(model, token="hf_of_the_image")
        options = [
            f"--volume={directory / 'made'}:/opt/cog-triton/engines/tensorrt_llm:ro",
            f"--volume={environments.SUPPORT}:/stand-in:ro",
            f"--volume={directory / 'cache'}:/root/.cache/huggingface",
            f"--volume={directory / 'out'}:/out",
            "--env=BUILDER_OUTPUT_DIR=/out",
            f"--env=HF_ENDPOINT={hub.url}",
            "--env=HF_TOKEN=hf_of_the_image",
        ]
        with container(image, *options) as builder:
            builder.wait_ready()
            for downloads in (True, False):
                hub.requests.clear()
                body = {"input": {"config": "./examples/gpt/config.yaml"}}
                answer = httpx2.post(f"{builder.url}/predictions", json=body, timeout=300).json()
                assert answer["status"] == "succeeded", answer
                assert bool(hub.file_requests()) == downloads
            fetched = httpx2.get(answer["output"], headers={"range": "bytes=0-511"}).content
    archive = (directory / "out/engine.tar").read_bytes()
    assert answer["file"]["path"] == "/out/engine.tar"
    assert answer["file"]["sha256"] == hashlib.sha256(archive).hexdigest()
    assert archive[:512] == fetched
    assert b"tokenizer/tokenizer.json" in archive
    assert list((directory / "cache/hub").glob("models--distilbert--distilgpt2/snapshots/*/vocab.json"))


def test_it_carries_what_builds_tensorrt_engines(image):
    script = "cd /opt/cog-triton/engines/tensorrt_llm; ls bin/trtllm-build examples/quantization/quantize.py; mpirun --version; cd /usr/lib/x86_64-linux-gnu; ls libpython3.12.so*"
    printed = podman("run", "--rm", *LIMITS, image, "bash", "-c", script).stdout
    assert "Open MPI" in printed
    assert printed.endswith("libpython3.12.so\nlibpython3.12.so.1.0\n")
