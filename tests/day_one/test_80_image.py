"""A runner image, from `nix build` to a model of one's own in a registry, on Replicate, and served with its arguments.

The registry is on loopback, and Replicate is tests/support/replicate.py, which runs the pushed image.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.cog.server import free_port
from tests.day_one.conftest import DEMO
from tests.support.replicate import API, TOKEN, make_certificate, replicate
from tests.support.uploads import Uploads

pytestmark = [pytest.mark.containers, pytest.mark.usefixtures("docker")]

MODEL = """\
instantiate:
  system_prompt: Be brief.
  server:
    tensorrt_llm:
      args: {decoupled_mode: "False"}
"""
BEARER = """-H "Authorization: Bearer $REPLICATE_API_TOKEN" -H 'Content-Type: application/json'"""
# What genai-perf runs. It needs a newer glibc than Debian 12 has; the image has one.
PERF_ANALYZER = """\
perf-analyzer==2.59.1 --hash=sha256:1719ad97306f442eed16a8abe7930ab81cd84c61658b8bbe864bee6520c7a656
"""


@pytest.fixture(scope="module", autouse=True)
def places(user, docker, registry_host, tmp_path_factory):
    """Where the user's names lead: a registry, a bucket, and Replicate."""
    folder = tmp_path_factory.mktemp("replicate")
    tls = make_certificate(folder, API)
    program = Path(user.variables["PATH"].partition(":")[0], "docker")
    with Uploads() as files, replicate(registry_host, tls, docker=program) as port:
        user.variables |= {
            "REGISTRY": registry_host,
            "REPLICATE_API_TOKEN": TOKEN,
            "BUCKET_URL": files.url,
            **{name: str(free_port()) for name in ("HTTP", "GRPC")},
        }
        settings = f'connect-to = "{API}:443:127.0.0.1:{port}"\ncacert = "{tls[0]}"\nfail-with-body\n'
        Path(user.variables["HOME"], ".curlrc").write_text(settings)
        yield


def test_the_image_is_built(user):
    user.types("mkdir -p $HOME/.config/nix")
    user.write("../.config/nix/nix.conf", "experimental-features = nix-command flakes\n")
    user.types("nix build .#cog-triton-runner-cpu")
    assert user.types("./result digest").text.startswith("sha256:")


def test_it_is_loaded_as_latest_and_by_its_digest(user):
    user.types("./result load")
    letters = user.types("./result digest").text.removeprefix("sha256:")[:12]
    names = user.types("docker images --format {{.Repository}}:{{.Tag}}").text.splitlines()
    assert {f"docker.io/library/cog-triton-runner-cpu:{tag}" for tag in ("latest", letters)} <= set(names)


def test_it_is_pushed_as_a_base(user):
    pushed = user.types("./result push $REGISTRY/acme/cog-triton-runner-cpu:1").text
    assert pushed == user.types("./result digest").text


def test_the_engine_goes_where_runners_reach_it(user):
    user.write("config.yaml", f"engine: ctranslate2\nmodel: {DEMO}\n")
    user.types("cog-triton build config.yaml -o engine.tar")
    user.types("curl -sT engine.tar $BUCKET_URL/engine.tar")


def test_a_model_is_made_on_replicate(user):
    model = '{"owner": "acme", "name": "smollm", "visibility": "private", "hardware": "cpu"}'
    made = user.types(f"curl -s https://api.replicate.com/v1/models {BEARER} -d '{model}'").json
    assert (made["name"], made["latest_version"]) == ("smollm", None)


def test_a_file_with_the_section_alone_and_a_variable_make_its_image(user):
    user.write("model.yaml", MODEL)
    user.types(
        "cog-triton instantiate model.yaml --base $REGISTRY/acme/cog-triton-runner-cpu:1"
        " --dest $REGISTRY/acme/smollm:latest -e COG_WEIGHTS=$BUCKET_URL/engine.tar"
    )
    config = user.types(
        "skopeo inspect --config --tls-verify=false docker://$REGISTRY/acme/smollm:latest"
    ).json
    assert "SYSTEM_PROMPT=Be brief." in config["config"]["Env"]


def test_replicate_predicts_with_it(user):
    model = user.types(f"curl -s https://api.replicate.com/v1/models/acme/smollm {BEARER}").json
    user.variables["VERSION"] = model["latest_version"]["id"]
    prompt = '"input": {"prompt": "Once upon a time,", "prompt_template": "{prompt}", "max_tokens": 16}'
    answer = user.types(
        f"""curl -s https://api.replicate.com/v1/predictions {BEARER} -H 'Prefer: wait'
            -d "{{\\"version\\": \\"acme/smollm:$VERSION\\", {prompt.replace('"', chr(92) + '"')}}}" """
    ).json
    assert (answer["status"], answer["model"]) == ("succeeded", "acme/smollm")
    assert "".join(answer["output"]).strip()


def test_it_is_pulled_and_served_with_its_arguments(user):
    user.types("docker pull $REGISTRY/acme/smollm:latest")
    user.write("perf/.keep", "")
    user.write("perf.txt", PERF_ANALYZER)
    user.types(
        "python -m pip download --quiet --no-deps --require-hashes -r perf.txt -d wheels"
        " --platform manylinux_2_38_x86_64 --only-binary=:all:"
    )
    user.types("python -m zipfile -e wheels/perf_analyzer-2.59.1-py3-none-manylinux_2_38_x86_64.whl perf")
    user.types("chmod -R a+rX perf")
    user.types("chmod a+x perf/perf_analyzer/bin/perf_analyzer")
    user.starts(
        "docker run --rm --name served -e PORT=$PORT -e TRITON_HTTP_ADDRESS=0.0.0.0:$HTTP"
        " -e TRITON_GRPC_ADDRESS=0.0.0.0:$GRPC -v $PWD/perf:/perf:ro $REGISTRY/acme/smollm:latest",
        "localhost:$PORT/health-check",
        says="READY",
    )
    body = '{"text_input": "Once upon a time,", "max_tokens": 16}'
    answer = user.types(f"curl -s localhost:$HTTP/v2/models/ensemble/generate -d '{body}'").json
    assert answer["text_output"]
    config = user.types("curl -s localhost:$HTTP/v2/models/ensemble/config").json
    assert config["model_transaction_policy"] == {"decoupled": False}


def test_nvidias_perf_tool_measures_it_over_grpc(user):
    inputs = '{"data": [{"text_input": ["Once upon a time,"], "max_tokens": [16]}]}'
    user.write("perf/inputs.json", inputs)
    user.types("chmod a+r perf/inputs.json")
    measured = user.types(
        "docker exec served /perf/perf_analyzer/bin/perf_analyzer -m ensemble -i grpc -u 127.0.0.1:$GRPC"
        " --input-data /perf/inputs.json --shape max_tokens:1 --shape text_input:1 --concurrency-range 2"
        " --measurement-interval 1000 --stability-percentage 999 --max-trials 3"
    )
    assert "Throughput:" in measured.text
    user.types("docker stop served")
