"""The builder over HTTP: an example, a model without tokenizer.json, and the ways to have the engine.

TensorRT-LLM is the tests' stand-in; everything else is what a user has.
"""

from __future__ import annotations

import hashlib
import json
import time

import pytest

from shared.layout import PROJECT_ROOT
from tests.day_one.conftest import PREDICT
from tests.support.hub import Repository
from tests.support.tensorrt_llm.environments import install
from tests.support.tokenizers import distilgpt2, sentencepiece_model
from tests.support.uploads import Uploads

TOKEN = "hf_of_the_environment"
EXAMPLE = {"input": {"config": "./examples/gpt/config.yaml"}}


@pytest.fixture(scope="module")
def uploads():
    """Where a user has files sent: as on S3, an address for one file is signed."""
    with Uploads() as server:
        yield server


@pytest.fixture(scope="module", autouse=True)
def installed(user, user_hub, uploads, tmp_path_factory):
    """A machine with TensorRT-LLM, and the example's model on the hub, for those with a token."""
    home = tmp_path_factory.mktemp("installed")
    install(home)
    (home / "tokenizer-converter").symlink_to(PROJECT_ROOT / ".build/tokenizer-converter")
    model = distilgpt2(home / "distilgpt2")
    user_hub.repositories["distilbert/distilgpt2"] = Repository(model, token=TOKEN)
    user.variables |= {"COG_TRITON_HOME": str(home), "WEBHOOK_ALLOW": uploads.url}


def test_the_check_finds_the_example_as_it_should_be(user):
    user.types(f"export HF_TOKEN={TOKEN}")
    assert "0 errors, 0 warnings" in user.types("cog-triton check examples/gpt/config.yaml").text


def test_the_builder_is_started(user):
    user.types("export BUILDER_OUTPUT_DIR=.")
    user.starts("python -m cli.builder_server --port $PORT", "localhost:$PORT/health-check", says="READY")


def test_an_example_is_built_with_the_token_of_the_environment(user, user_hub):
    answer = user.types(f"{PREDICT}'{json.dumps(EXAMPLE)}'")
    assert answer.json["status"] == "succeeded", answer.text
    assert len(answer.text) < 10_000
    archive = (user.folder / "engine.tar").read_bytes()
    assert answer.json["file"] == {
        "path": "engine.tar",
        "sha256": hashlib.sha256(archive).hexdigest(),
        "size": len(archive),
    }
    assert user_hub.tokens == {TOKEN}
    user.types(f"export OUTPUT={answer.json['output']}")


def test_the_engine_is_fetched_whole_and_in_parts(user):
    user.types("curl -s -o fetched.tar $OUTPUT")
    assert (user.folder / "fetched.tar").read_bytes() == (user.folder / "engine.tar").read_bytes()
    assert user.types("curl -s -r 0-12 $OUTPUT").text == "manifest.json"
    assert "tokenizer/tokenizer.json" in user.types("tar -tf fetched.tar").text


def test_the_engine_is_sent_to_a_signed_address(user, uploads):
    body = {**EXAMPLE, "output_file_prefix": f"{uploads.url}/bucket/engine.tar?X-Amz-Signature=1"}
    answer = user.types(f"{PREDICT}'{json.dumps(body)}'").json
    assert answer["output"] == f"{uploads.url}/bucket/engine.tar"
    (received,) = uploads.received.values()
    assert hashlib.sha256(received).hexdigest() == answer["file"]["sha256"]


def test_a_build_in_the_background_is_asked_after(user):
    started = user.types(f"{PREDICT}'{json.dumps(EXAMPLE)}' -H 'Prefer: respond-async'").json
    states = []
    while not states or states[-1]["status"] in ("starting", "processing"):
        states.append(user.types(f"curl -s localhost:$PORT/predictions/{started['id']}").json)
        time.sleep(0.02)
    assert states[-1]["status"] == "succeeded", states[-1]
    steps = {state["progress"]["step"] for state in states if "progress" in state}
    assert {"convert_to_ft", "build"} & steps
    assert "progress" not in states[-1]


def test_a_model_with_a_tokenizer_model_alone(user):
    sentencepiece_model(user.folder / "llama")
    user.write("llama.yaml", "engine: mock\nmodel: ./llama\n")
    assert "E3032" in user.types("cog-triton check llama.yaml").text
    user.types("cog-triton build llama.yaml -o llama.tar")
    assert "tokenizer/tokenizer.json" in user.types("tar -tf llama.tar").text
