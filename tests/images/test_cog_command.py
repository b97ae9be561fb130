"""Our image, read and run as Cog's command-line tool does it (`cog run IMAGE -i prompt=...`, cog 0.22).

What that tool looks at is in its pkg/model (labels) and pkg/predict (the container); it is a program of Go, which no
package index has.
"""

import json
import subprocess

import httpx2
import pytest

from tests.support.images import CPU, container, podman

# `build` and what else its Config holds, with the types of Go that JSON has to fit.
BUILD = {"gpu": bool, "python_version": str}
CONFIG = {"build": dict, "predict": str}


@pytest.fixture(scope="module")
def labels(cpu):
    """Of the image, as `docker inspect` tells them."""
    subprocess.run([cpu, "load"], check=True, capture_output=True)
    return json.loads(podman("inspect", CPU).stdout)[0]["Config"]["Labels"]


def references(part):
    """All `$ref` below."""
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        part = list(part.values())
    if isinstance(part, list):
        for one in part:
            yield from references(one)


def test_it_is_a_model_of_cogs(labels):
    config = json.loads(labels["run.cog.config"])
    assert {name: type(value) for name, value in config.items()} == CONFIG
    assert {name: type(value) for name, value in config["build"].items()} == BUILD
    assert labels["run.cog.version"]


def test_its_schema_can_be_loaded(labels):
    schema = json.loads(labels["run.cog.openapi_schema"])
    assert schema["openapi"].startswith("3.")
    for reference in references(schema):
        place = schema
        for name in reference.removeprefix("#/").split("/"):
            place = place[name]
    # What `cog run` makes of `-i name=value`: the type of each input, in this order, and how the output is shown.
    inputs = schema["components"]["schemas"]["Input"]["properties"]
    assert inputs["prompt"]["x-order"] == 0
    assert all("type" in one or "allOf" in one or "anyOf" in one for one in inputs.values())
    assert schema["components"]["schemas"]["Output"]["x-cog-array-type"] == "iterator"


def test_it_runs_with_its_own_command_on_port_5000(labels, mock):
    volumes = [f"--volume={mock}:/engine:ro", "--volume=/var/cache/cog-triton"]
    with container(CPU, *volumes, "--env=COG_WEIGHTS=/engine/engine.tar") as server:
        statuses = set()
        while statuses.isdisjoint({"READY"}):
            # Anything else than these two ends the tool with an error.
            assert statuses <= {"STARTING"}, server.logs()
            assert server.is_running(), server.logs()
            try:
                answer = httpx2.get(f"{server.url}/health-check", timeout=0.25)
            except httpx2.TransportError:
                continue
            statuses.add(answer.json()["status"])
        assert httpx2.get(f"{server.url}/openapi.json").json() == json.loads(labels["run.cog.openapi_schema"])
        address = f"{server.url}/predictions"
        asked = {"input": {"prompt": "Hello", "max_tokens": 3}, "context": {}}
        answer = httpx2.post(address, json=asked)
        assert answer.status_code == 200
        said = answer.json()
        assert (said["status"], "".join(said["output"])) == ("succeeded", "0 1 2")
        refused = httpx2.post(
            address, json={"input": {"prompt": "Hello", "max_tokens": "three"}, "context": {}}
        )
        assert refused.status_code == 422
        [problem] = refused.json()["detail"]
        assert problem["loc"] == ["body", "input", "max_tokens"]
        assert problem["msg"]
