"""What every image promises. IMAGE names another than the CPU's runner."""

import json
import os
import re

import pytest

from tests.support.images import CPU, LIMITS, ROOT, build_image, container, podman, run

IMAGE = os.environ.get("IMAGE", CPU)
PREDICTOR = "builder" if "builder" in IMAGE else "runner"
# What a start imports. Without a GPU's driver, TensorRT-LLM cannot be imported.
LIBRARIES = {
    "ctranslate2": ["ctranslate2"],
    "vllm": [
        "vllm.engine.arg_utils",
        "vllm.v1.engine.core_client",
        "vllm.v1.executor.multiproc_executor",
        "vllm.v1.worker.gpu_worker",
        "vllm.v1.worker.gpu_model_runner",
        "vllm.model_executor.models.llama",
    ],
    "tensorrt_llm": ["sys"],
}
# As OpenShift gives containers one: in no /etc/passwd, and in the group root.
ANY_USER = "--user=1000660000:0"
# Modules that were not loaded from bytecode, or from bytecode that would be compared with its source. The
# application's change with every commit; a link leads to a setting.
CHECKED = """
import sys
from pathlib import Path

for module in list(sys.modules.values()):
    spec = getattr(module, "__spec__", None)
    path = Path(spec.origin if spec and spec.origin else "")
    if path.suffix == ".py" and not path.is_relative_to("/src") and not path.is_symlink():
        cached = Path(spec.cached)
        if not cached.exists() or cached.read_bytes()[4:8] != bytes([1, 0, 0, 0]):
            print(path)
"""


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return build_image(IMAGE, tmp_path_factory.mktemp("image") / "result")


@pytest.fixture(scope="module")
def image(result):
    run(result, "load")
    return IMAGE


@pytest.fixture(scope="module")
def sbom(result, tmp_path_factory):
    path = tmp_path_factory.mktemp("sbom") / "sbom.spdx.json"
    path.write_text(run(result, "sbom").stdout)
    return path


@pytest.fixture(scope="module")
def config(image):
    return json.loads(podman("inspect", image).stdout)[0]["Config"]


@pytest.mark.parametrize("user", [[], [ANY_USER]], ids=["cog", "any"])
def test_it_becomes_ready_with_a_read_only_root(image, mock, user):
    options = [
        *user,
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
        libraries = ", ".join(LIBRARIES[place.rpartition("/")[2]])
        podman("run", "--rm", ANY_USER, *LIMITS, image, f"{place}/bin/python", "-c", f"import {libraries}")


def test_what_serves_is_loaded_from_bytecode_that_is_never_checked(image):
    script = f"import {PREDICTOR}.run\n{CHECKED}"
    assert podman("run", "--rm", *LIMITS, image, "python", "-c", script).stdout == ""


def test_python_finds_the_libraries_of_the_system(image):
    script = "from ctypes.util import find_library; print(find_library('c'), find_library('stdc++'))"
    found = podman("run", "--rm", *LIMITS, image, "python", "-c", script).stdout
    assert found == "libc.so.6 libstdc++.so.6\n"


def test_it_holds_no_tests_and_no_history(image):
    script = "import os; print(*(os.path.join(place, name) for place, _, names in os.walk('/src') for name in names))"
    names = podman("run", "--rm", *LIMITS, image, "python", "-c", script).stdout.split()
    assert f"/src/{PREDICTOR}/run.py" in names
    assert [name for name in names if {"tests", ".git", "__pycache__"} & set(name.split("/"))] == []


def test_its_list_of_contents_holds_what_the_ntia_asks_for(sbom, judges):
    run(judges / "pyspdxtools", "--infile", sbom)
    judged = run(judges / "ntia-checker", "--comply", "ntia", sbom)
    assert re.search(r"^Conformant: True$", judged.stdout, re.MULTILINE), judged.stdout


def test_its_list_of_contents_names_our_own_part_and_the_sources_of_debians(sbom):
    packages = {package["name"]: package for package in json.loads(sbom.read_text())["packages"]}
    assert packages["cog-triton"]["licenseDeclared"] == "Apache-2.0"
    assert (PREDICTOR == "builder") or "cog-triton-engine-bridge" in packages
    libc = packages["libc6"]
    assert libc["supplier"] == "Organization: Debian"
    assert libc["sourceInfo"].startswith("built from the source package glibc ")
    reference = libc["externalRefs"][0]["referenceLocator"]
    assert re.fullmatch(
        r"pkg:deb/debian/libc6@[^?]+\?arch=amd64&distro=debian-13&upstream=glibc%40.+", reference
    )
    licensed = [name for name, package in packages.items() if package["licenseDeclared"] != "NOASSERTION"]
    assert len(licensed) > 0.8 * len(packages)


def test_its_labels_say_where_it_comes_from(config):
    labels = {name.removeprefix("org.opencontainers.image."): text for name, text in config["Labels"].items()}
    assert labels["source"].startswith("https://github.com/")
    assert (labels["licenses"], labels["title"]) == ("Apache-2.0", IMAGE)
