"""What every image promises. IMAGE names another than the CPU's runner."""

import json
import os

import pytest

from tests.support.images import CPU, LIMITS, ROOT, build_image, container, podman, run

IMAGE = os.environ.get("IMAGE", CPU)
PREDICTOR = "builder" if "builder" in IMAGE else "runner"
# Without a GPU's driver, TensorRT-LLM cannot be imported.
LIBRARIES = {"ctranslate2": "ctranslate2", "vllm": "vllm", "tensorrt_llm": "sys"}


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return build_image(IMAGE, tmp_path_factory.mktemp("image") / "result")


@pytest.fixture(scope="module")
def image(result):
    run(result, "load")
    return IMAGE


@pytest.fixture(scope="module")
def config(image):
    return json.loads(podman("inspect", image).stdout)[0]["Config"]


def test_it_becomes_ready_with_a_read_only_root(image, mock):
    options = [
        f"--volume={mock}:/engine:ro",
        "--volume=/var/cache/cog-triton",
        "--env=COG_WEIGHTS=/engine/engine.tar",
    ]
    with container(image, *options) as server:
        assert server.wait_ready()["status"] == "READY", server.logs()


def test_it_runs_as_its_own_user_and_serves_cogs_port(config):
    assert (config["User"], "5000/tcp" in config["ExposedPorts"]) == ("cog", True)


def test_its_label_is_the_schema_that_it_serves(image, config):
    schema = (ROOT / PREDICTOR / ".cog/openapi_schema.json").read_text()
    served = podman("run", "--rm", *LIMITS, image, "bash", "-c", "cat .cog/openapi_schema.json").stdout
    assert config["Labels"]["run.cog.openapi_schema"] == served == schema


def test_a_shell_and_the_command_line_work_as_the_command(image):
    script = "id -un; python --version; cog-triton --help"
    printed = podman("run", "--rm", *LIMITS, image, "bash", "-c", script).stdout
    assert printed.startswith("cog\nPython 3.13")
    assert "instantiate" in printed


def test_its_engines_can_be_imported(image):
    listed = podman("run", "--rm", *LIMITS, image, "bash", "-c", "echo /opt/cog-triton/engines/*").stdout
    for place in listed.split():
        library = LIBRARIES[place.rpartition("/")[2]]
        podman("run", "--rm", *LIMITS, image, f"{place}/bin/python", "-c", f"import {library}")


def test_it_holds_no_tests_and_no_history(image):
    script = "import os; print(*(os.path.join(place, name) for place, _, names in os.walk('/src') for name in names))"
    names = podman("run", "--rm", *LIMITS, image, "python", "-c", script).stdout.split()
    assert f"/src/{PREDICTOR}/run.py" in names
    assert [name for name in names if {"tests", ".git", "__pycache__"} & set(name.split("/"))] == []
