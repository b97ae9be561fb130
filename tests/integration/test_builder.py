"""The whole builder: in this process, and as Cog serves it."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
from pathlib import Path

import httpx2
import pytest

from builder.pipeline import build
from demo.cog_server import CogServer
from runner.weights.fetch import fetch_weights
from shared.artifact import extract_archive
from shared.cog.server import free_port
from shared.errors import (
    CheckpointInvalid,
    HostMemoryExhausted,
    OutputNotFound,
    Overloaded,
    UnsupportedArchitecture,
    UploadFailed,
)
from shared.layout import PROJECT_ROOT, Layout
from tests.support.conformance.transcript import event_of
from tests.support.hub import Hub, Repository
from tests.support.processes import MARK, pid_of
from tests.support.uploads import Uploads
from tests.support.waiting import wait_for

DEMO = PROJECT_ROOT / "demo/model"
TOKEN = "hf_do_not_tell_anyone"
OWN_TOKEN = "hf_of_the_builder_itself"


def config(model, **keys):
    return "data:," + json.dumps({"engine": "ctranslate2", "model": str(model), **keys})


@pytest.fixture
def model(tmp_path):
    """A copy of the demo's model, to be changed."""
    return Path(shutil.copytree(DEMO, tmp_path / "model"))


def test_two_builds_of_the_demo_are_the_same_bytes(tmp_path):
    for name in ("one.tar", "two.tar"):
        build(config(DEMO), tmp_path / name, work_dir=tmp_path)
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.tar", "two.tar"]


def test_the_engine_loads(tmp_path):
    manifest = build(config(DEMO, quantization="int8"), tmp_path / "engine.tar")
    with (tmp_path / "engine.tar").open("rb") as archive:
        extract_archive(archive, tmp_path / "engine", check=lambda _: None, max_bytes=1 << 30)
    python = Layout.current().engine_python("ctranslate2")
    program = "import sys, ctranslate2; ctranslate2.Generator(sys.argv[1]); print(ctranslate2.__version__)"
    loaded = subprocess.run(
        [python, "-c", program, tmp_path / "engine/engine"], check=True, capture_output=True, text=True
    )
    assert loaded.stdout.strip() == manifest.engine_version
    assert (tmp_path / "engine/tokenizer/config.json").read_bytes() == (DEMO / "config.json").read_bytes()


def test_errors_of_the_conversion_keep_their_code(tmp_path, model):
    hyperparameters = json.loads((model / "config.json").read_text())
    hyperparameters["architectures"] = ["MambaForCausalLM"]
    hyperparameters["model_type"] = "mamba"
    (model / "config.json").write_text(json.dumps(hyperparameters))
    with pytest.raises(UnsupportedArchitecture, match="Mamba"):
        build(config(model), tmp_path / "engine.tar")
    assert not (tmp_path / "engine.tar").exists()


def test_half_a_checkpoint_is_refused(tmp_path, model):
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    with pytest.raises(CheckpointInvalid):
        build(config(model), tmp_path / "engine.tar")
    assert not (tmp_path / "engine.tar").exists()


class Served:
    """The builder behind its server, with a hub on loopback for it."""

    def __init__(self, url: str, hub: Hub, uploads: Uploads, directory: Path) -> None:
        self.url = url
        self.hub = hub
        self.uploads = uploads
        self.output = directory / "output"
        self.scratch = directory / "scratch"
        self.log = directory / "log"
        self.mark = os.urandom(8).hex()

    def predict(self, beside=None, **inputs):
        body = {"input": inputs, **(beside or {})}
        return httpx2.post(f"{self.url}/predictions", json=body, timeout=120).json()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    directory = tmp_path_factory.mktemp("served")
    with Hub() as hub, Uploads() as uploads:
        hub.repositories["demo/model"] = Repository(DEMO)
        served = Served("", hub, uploads, directory)
        served.output.mkdir()
        served.scratch.mkdir()
        environment = {
            "BUILDER_OUTPUT_DIR": str(served.output),
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(directory / "huggingface"),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_TOKEN": OWN_TOKEN,
            MARK: served.mark,
            "TMPDIR": str(served.scratch),
            "WEBHOOK_ALLOW": uploads.url,
        }
        with (
            served.log.open("wb") as log,
            CogServer("builder", environment=environment, output=log.fileno()) as server,
        ):
            server.wait_ready(60)
            served.url = server.url
            yield served


def test_the_answer_says_where_the_engine_is_and_what(served):
    answer = served.predict(config=config("demo/model"))
    assert answer["status"] == "succeeded", answer
    archive = (served.output / "engine.tar").read_bytes()
    digest = hashlib.sha256(archive).hexdigest()
    assert answer["file"] == {
        "path": str(served.output / "engine.tar"),
        "sha256": digest,
        "size": len(archive),
    }
    fetched = httpx2.get(answer["output"])
    assert fetched.headers["content-type"] == "application/x-tar"
    assert fetched.headers["etag"] == f'"{digest}"'
    assert fetched.content == archive


def test_ranges_of_an_engine(served):
    answer = served.predict(config=config("demo/model"))
    archive = (served.output / "engine.tar").read_bytes()

    def get(**headers):
        return httpx2.get(
            answer["output"], headers={name.replace("_", "-"): headers[name] for name in headers}
        )

    part = get(range="bytes=512-1023")
    assert (part.status_code, part.content) == (206, archive[512:1024])
    assert part.headers["content-range"] == f"bytes 512-1023/{len(archive)}"
    assert get(range="bytes=-100").content == archive[-100:]
    assert get(range=f"bytes={len(archive)}-").status_code == 416
    same = f'"{answer["file"]["sha256"]}"'
    assert get(range="bytes=0-9", if_range=same).status_code == 206
    assert get(range="bytes=0-9", if_range='"another"').content == archive
    head = httpx2.head(answer["output"])
    assert (head.headers["content-length"], head.content) == (str(len(archive)), b"")


def test_a_runner_takes_the_engine_from_there(served, tmp_path):
    answer = served.predict(config=config("demo/model"))
    fetched = fetch_weights(answer["output"], tmp_path, check=lambda _: None, max_bytes=1 << 30)
    assert (fetched.path / "engine/model.bin").is_file()


def test_an_engine_can_be_had_until_the_next_one_is_there(served, answered):
    first = served.predict(config=config("demo/model"))["output"]
    served.hub.repositories["demo/later"] = Repository(DEMO)
    with served.hub.holding():
        later = asynchronous(served, "later", config("demo/later"))
        assert httpx2.get(first).status_code == 200
        early = httpx2.get(f"{later}/output")
        assert early.status_code == 404
        answered(early.json()["error"], OutputNotFound())
    wait_for(lambda: httpx2.get(later).json()["status"] == "succeeded")
    assert httpx2.get(first).status_code == 404
    assert httpx2.get(httpx2.get(later).json()["output"]).status_code == 200


def test_a_build_in_the_background_tells_how_far_it_is(served):
    served.hub.repositories["demo/watched"] = Repository(DEMO)
    with served.hub.holding():
        watched = asynchronous(served, "watched", config("demo/watched"))
        wait_for(lambda: httpx2.get(watched).json().get("progress", {}).get("step") == "download")
        running = httpx2.get(watched).json()
        assert running["status"] == "processing"
        assert running["progress"].keys() == {"step", "done", "total"}
        assert "step started" in running["logs"]
    wait_for(lambda: httpx2.get(watched).json()["status"] == "succeeded")
    ended = httpx2.get(watched).json()
    assert "progress" not in ended
    assert ended["file"]["size"] == (served.output / "engine.tar").stat().st_size


def test_a_second_build_is_told_what_would_help(served, answered):
    served.hub.repositories["demo/first"] = Repository(DEMO)
    with served.hub.holding():
        first = asynchronous(served, "first", config("demo/first"))
        refused = served.predict(config=config("demo/model"))
    what = "prediction is running or waiting"
    answered(refused["error"], Overloaded(limit=1, what=what, fix="run more builders"))
    wait_for(lambda: httpx2.get(first).json()["status"] == "succeeded")


def test_a_port_that_is_none():
    command = [sys.executable, "-m", "cli.builder_server"]
    done = subprocess.run(
        command, env={**os.environ, "PORT": "abc"}, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert "E4002 SettingInvalid: The setting PORT is 'abc', but a port must be a number" in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_ends_it_without_a_traceback(tmp_path):
    port = free_port()
    command = [sys.executable, "-m", "cli.builder_server", "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(
        command, env={**os.environ, "BUILDER_OUTPUT_DIR": str(tmp_path)}, stderr=subprocess.PIPE, text=True
    ) as server:
        wait_for(lambda: is_listening(port))
        server.send_signal(signal.SIGINT)
        _, said = server.communicate(timeout=60)
    assert server.returncode == 0
    assert "Traceback" not in said


def is_listening(port):
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def asynchronous(served, prediction_id, source):
    """The address of a prediction that has begun."""
    address = f"{served.url}/predictions/{prediction_id}"
    body = {"input": {"config": source}}
    started = httpx2.put(address, json=body, headers={"Prefer": "respond-async"})
    assert started.status_code == 202
    return address


def test_an_engine_is_sent_to_an_address_that_was_signed_for_it(served):
    signed = f"{served.uploads.url}/bucket/key?X-Amz-Signature=abc&X-Amz-Expires=60"
    answer = served.predict({"output_file_prefix": signed}, config=config("demo/model"))
    assert answer["output"] == f"{served.uploads.url}/bucket/key"
    path = signed.removeprefix(served.uploads.url)
    assert served.uploads.received[path] == (served.output / "engine.tar").read_bytes()


def test_the_builders_own_token_is_taken_when_none_is_sent(served):
    served.hub.repositories["demo/own"] = Repository(DEMO, token=OWN_TOKEN)
    assert served.predict(config=config("demo/own"))["status"] == "succeeded"
    served.hub.repositories["demo/theirs"] = Repository(DEMO, token=TOKEN)
    assert served.predict(config=config("demo/theirs"))["error"].startswith("E3100 ModelNotFound")
    assert served.predict(config=config("demo/theirs"), hf_token=TOKEN)["status"] == "succeeded"
    assert OWN_TOKEN not in served.log.read_text()


def test_what_a_build_says_comes_as_events(served):
    body = {"input": {"config": config("demo/model")}}
    answer = httpx2.post(
        f"{served.url}/predictions", json=body, headers={"accept": "text/event-stream"}, timeout=120
    )
    events = [event_of(block) for block in answer.text.strip().split("\n\n")]
    said = [data for kind, data in events if kind == "log"]
    assert {kind for kind, _ in events[1:-1]} == {"log"}
    assert {data["source"] for data in said} == {"stderr"}
    assert "step finished" in said[0]["data"] + said[-1]["data"]
    assert "".join(data["data"] for data in said) == events[-1][1]["logs"]


def test_an_engine_is_sent_to_an_address_that_the_operator_named(served):
    answer = served.predict({"output_file_prefix": served.uploads.url}, config=config("demo/model"))
    assert answer["status"] == "succeeded", answer
    assert answer["output"] == f"{served.uploads.url}/engine.tar"
    assert served.uploads.received["/engine.tar"] == (served.output / "engine.tar").read_bytes()


def test_an_engine_is_not_sent_elsewhere_on_this_machine(served):
    answer = served.predict({"output_file_prefix": "http://127.0.0.1:9/"}, config=config("demo/model"))
    assert answer["error"].startswith("E1326 AddressRefused: ")


def test_an_address_that_does_not_take_it(served, answered):
    address = f"{served.uploads.url}/no"
    answer = served.predict({"output_file_prefix": address}, config=config("demo/model"))
    answered(answer["error"], UploadFailed(address=f"{address}/engine.tar", reason="it answered with 404"))


def test_web_pages_of_other_origins_neither_build_nor_read(served):
    for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
        body = {"input": {"config": "data:,engine: mock"}}
        answer = httpx2.post(f"{served.url}/predictions", json=body, headers=headers, timeout=60)
        assert answer.json()["error_code"] in ("E1346", "E1347")


def test_building_again_downloads_nothing_and_gives_the_same_bytes(served):
    first = httpx2.get(served.predict(config=config("demo/model"))["output"]).content
    served.hub.requests.clear()
    assert httpx2.get(served.predict(config=config("demo/model"))["output"]).content == first
    assert served.hub.file_requests() == []


@pytest.mark.parametrize(
    ("source", "code"),
    [
        (config("demo/unknown"), "E3100 ModelNotFound"),
        (config("demo/model", revision="v9"), "E3102 RevisionNotFound"),
        (config("demo/model", quantisation="int8"), "E3004 ConfigInvalid"),
        ("http://127.0.0.1:9/config.yaml", "E3000 ConfigUnreachable"),
        ("data:,{", "E3002 ConfigNotYaml"),
        (f"data:,{'{' * 200_000}", "E3002 ConfigNotYaml"),
        ("data:,engine: mock\0", "E3002 ConfigNotYaml"),
        ("config\0.yaml", "E3000 ConfigUnreachable"),
    ],
)
def test_errors_reach_the_client(served, source, code):
    (served.output / "engine.tar").unlink(missing_ok=True)
    answer = served.predict(config=source)
    assert answer["status"] == "failed"
    assert code in answer["error"]
    assert "Traceback" not in answer["logs"]
    assert list(served.output.iterdir()) == []
    assert list(served.scratch.iterdir()) == []


@pytest.mark.parametrize("token", ["hf_" + "x" * 200_000, "hf_\0x"])
def test_what_cannot_be_a_token_is_refused(served, token):
    answer = served.predict(config="data:,engine: mock", hf_token=token)
    assert answer["error"].startswith(
        "E1322 InputInvalid: input.hf_token: it is not a token of Hugging Face."
    )


def test_the_token_stays_inside(served):
    served.hub.repositories["demo/private"] = Repository(DEMO, token=TOKEN)
    answer = served.predict(config=config("demo/private"), hf_token=TOKEN)
    assert answer["status"] == "succeeded", answer
    assert TOKEN in served.hub.tokens
    with tarfile.open(fileobj=io.BytesIO((served.output / "engine.tar").read_bytes())) as archive:
        assert not [m.name for m in archive if TOKEN.encode() in archive.extractfile(m).read()]
    assert TOKEN not in json.dumps(answer)
    assert TOKEN not in served.log.read_text()
    body = {"input": {"config": "data:,{", "hf_token": TOKEN}}
    httpx2.put(f"{served.url}/predictions/secret", json=body, headers={"Prefer": "respond-async"})
    assert TOKEN not in httpx2.get(f"{served.url}/predictions/secret").text


def test_cancel_ends_the_build_and_leaves_nothing(served):
    # The build of the test before has given its place back.
    wait_for(lambda: httpx2.get(f"{served.url}/health-check").json()["status"] == "READY")
    (served.output / "engine.tar").unlink(missing_ok=True)
    served.hub.repositories["demo/slow"] = Repository(DEMO)
    with served.hub.holding():
        started = httpx2.put(
            f"{served.url}/predictions/slow",
            json={"input": {"config": config("demo/slow")}},
            headers={"Prefer": "respond-async"},
        )
        assert started.status_code == 202
        wait_for(lambda: any("/stored/demo--slow" in request for request in served.hub.requests))
        httpx2.post(f"{served.url}/predictions/slow/cancel").raise_for_status()
    wait_for(lambda: httpx2.get(f"{served.url}/health-check").json()["status"] == "READY")
    assert list(served.output.iterdir()) == []
    assert list(served.scratch.iterdir()) == []


def test_a_build_that_is_killed_is_no_surprise(served):
    """The kernel may take the build itself, and not one of its children, when memory runs out."""
    wait_for(lambda: httpx2.get(f"{served.url}/health-check").json()["status"] == "READY")
    served.hub.repositories["demo/large"] = Repository(DEMO)
    with served.hub.holding():
        asynchronous(served, "killed", config("demo/large"))
        wait_for(lambda: any("/stored/demo--large" in request for request in served.hub.requests))
        os.kill(pid_of(served.mark, "cli.builder_server.process"), signal.SIGKILL)
        wait_for(lambda: "error" in httpx2.get(f"{served.url}/predictions/killed").json())
    error = httpx2.get(f"{served.url}/predictions/killed").json()["error"]
    assert error == str(HostMemoryExhausted(step="build"))
