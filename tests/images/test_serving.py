"""The CPU's runner in a container, from the demo's engine to streamed text."""

import tarfile

import pytest

from demo.cog_client import PredictionClient
from tests.support.images import CPU, container, podman, run, shared_directory


@pytest.fixture(scope="module")
def image(cpu):
    run(cpu, "load")
    return CPU


def answer(server, demo):
    inputs = {"prompt": demo["prompt"], "max_tokens": demo["max_tokens"], "temperature": 0}
    return list(PredictionClient(server.url).text(inputs))


def with_weights(engine):
    return [
        f"--volume={engine}:/engine:ro",
        "--volume=/var/cache/cog-triton",
        "--env=COG_WEIGHTS=/engine/engine.tar",
    ]


def test_the_known_text_streams(image, engine, demo):
    with container(image, *with_weights(engine)) as server:
        assert server.wait_ready()["status"] == "READY"
        chunks = answer(server, demo)
    assert "".join(chunks) == demo["text"]
    assert len(chunks) > 1


def test_a_mounted_model_repository_is_served_by_cogs_own_command(image, engine, demo, tmp_path_factory):
    unpacked = shared_directory(tmp_path_factory, "unpacked")
    with tarfile.open(engine / "engine.tar") as archive:
        archive.extractall(unpacked, filter="data")
    mounted = f"--volume={unpacked}:/src/triton_model_repo/tensorrt_llm/1:ro"
    with container(image, mounted, command=("python", "-m", "cog.server.http")) as server:
        assert server.wait_ready()["status"] == "READY"
        assert "".join(answer(server, demo)) == demo["text"]


def test_without_an_engine_it_says_what_to_set(image, saw):
    with container(image) as server:
        health = server.wait_ready()
    assert health["status"] == "SETUP_FAILED"
    assert "E4201" in saw(health["setup"]["logs"])


def test_it_stops_when_told_to_and_leaves_no_process(image, engine):
    with container(image, *with_weights(engine)) as server:
        server.wait_ready()
        podman("stop", "--time=60", server.name)
        state = podman("inspect", server.name, "--format={{.State.ExitCode}}").stdout.strip()
    assert state == "0"


def test_orphans_are_reaped(image, engine):
    """Process 1 takes in what other processes leave behind."""
    with container(image, *with_weights(engine)) as server:
        server.wait_ready()
        server.exec("bash", "-c", "(sleep 0.1 &) ; sleep 1")
        script = "cat /proc/[0-9]*/stat"
        states = [
            line.rpartition(")")[2].split()[0] for line in server.exec("bash", "-c", script).splitlines()
        ]
    assert "Z" not in states
