"""Pushing: to a registry on loopback, with all that can go wrong there."""

import base64
import hashlib
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.images import CPU, ROOT, build_image, registry, run, stored_bytes

CODE_CHANGE_BYTES = 300_000
MODEL_BYTES = 20_000
INSPECT = ["inspect", "--config", "--tls-verify=false"]
# bcrypt of "secret"
HTPASSWD = "user:$2y$05$jgidEhSlbjN.X7B/4QQ22u7neymJrqcxSRi3GtG/ihF9m81vMIJTq\n"


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """Where the registry keeps what it has."""
    return tmp_path_factory.mktemp("registry")


@pytest.fixture(scope="module")
def host(directory, cpu):
    """A registry that has the runner already."""
    with registry(directory) as address:
        run(cpu, "push", f"{address}/runner:1")
        yield address


def pulled_manifest(reference):
    return run("skopeo", "inspect", "--raw", "--tls-verify=false", f"docker://{reference}").stdout


def test_the_digest_is_that_of_the_image_before_and_after(cpu, host):
    pushed = run(cpu, "push", f"{host}/runner:again").stdout.strip()
    manifest = pulled_manifest(f"{host}/runner:1")
    assert (
        pushed
        == run(cpu, "digest").stdout.strip()
        == f"sha256:{hashlib.sha256(manifest.encode()).hexdigest()}"
    )


def test_what_is_pulled_back_is_what_was_written(cpu, host, tmp_path):
    run(cpu, "layout", tmp_path / "written")
    pulled = tmp_path / "pulled"
    options = ["--insecure-policy", "copy", "--src-tls-verify=false"]
    run("skopeo", *options, f"docker://{host}/runner:1", f"oci:{pulled}")
    names = sorted(path.name for path in pulled.glob("blobs/sha256/*"))
    assert names == sorted(path.name for path in (tmp_path / "written").glob("blobs/sha256/*"))
    assert all(
        hashlib.sha256((pulled / "blobs/sha256" / name).read_bytes()).hexdigest() == name for name in names
    )


def test_contents_and_making_are_attached_to_what_was_pushed(cpu, host, tmp_path):
    (tmp_path / "provenance.json").write_text('{"_type": "https://in-toto.io/Statement/v1"}')
    run(cpu, "attach", f"{host}/runner:1", "--provenance", tmp_path / "provenance.json")
    listed = run(ROOT / "ci/attached", f"{host}/runner:1").stdout
    assert [line.split()[0] for line in listed.splitlines()] == [
        "application/spdx+json",
        "application/openvex+json",
        "application/vnd.in-toto+json",
    ]
    contents = run(ROOT / "ci/attached", f"{host}/runner:1", "application/spdx+json").stdout
    assert json.loads(contents) == json.loads(run(cpu, "sbom").stdout)
    flaws = run(ROOT / "ci/attached", f"{host}/runner:1", "application/openvex+json").stdout
    assert json.loads(flaws) == json.loads(run(cpu, "vex").stdout)
    # This registry knows no referrers: a tag lists them, as cosign and oras expect it.
    tag = run(cpu, "digest").stdout.strip().replace(":", "-")
    assert len(json.loads(pulled_manifest(f"{host}/runner:{tag}"))["manifests"]) == 3


@pytest.mark.parametrize(
    ("module", "layer"),
    [
        ("runner/prediction/inputs.py", "application-runner"),
        ("shared/sizes.py", "shared"),
        ("cli/main.py", "command-line"),
    ],
)
def test_a_change_of_code_sends_one_layer(cpu, host, checkout, directory, tmp_path, module, layer):
    run(cpu, "push", f"{host}/runner:1")
    before = stored_bytes(directory)
    module = checkout / module
    original = module.read_text()
    module.write_text(f"{original}\n# changed\n")
    changed = build_image(CPU, tmp_path / "changed", root=checkout)
    module.write_text(original)
    told = run(changed, "push", f"{host}/runner:2").stderr
    assert re.findall(r"^(\S+): sending", told, re.MULTILINE) == [layer]
    assert 0 < stored_bytes(directory) - before <= CODE_CHANGE_BYTES


def test_a_push_that_was_interrupted_is_completed_by_the_next(cpu, tmp_path, tmp_path_factory):
    left = tmp_path_factory.mktemp("left")  # by a push that is killed
    with registry(tmp_path) as host:
        command = [cpu, "push", f"{host}/runner:1"]
        first = subprocess.Popen(
            command, stderr=subprocess.PIPE, start_new_session=True, env={**os.environ, "TMPDIR": str(left)}
        )
        while not stored_bytes(tmp_path):
            assert first.poll() is None
            time.sleep(0.01)
        os.killpg(first.pid, signal.SIGKILL)
        first.communicate()
        pushed = run(*command).stdout.strip()
        assert hashlib.sha256(pulled_manifest(f"{host}/runner:1").encode()).hexdigest() in pushed


def test_a_wrong_password_is_named(cpu, tmp_path):
    (tmp_path / "htpasswd").write_text(HTPASSWD)
    access = {"auth": {"htpasswd": {"realm": "test", "path": str(tmp_path / "htpasswd")}}}
    with registry(tmp_path, **access) as host:
        login = {"auths": {host: {"auth": base64.b64encode(b"user:wrong").decode()}}}
        (tmp_path / "auth.json").write_text(json.dumps(login))
        environment = {**os.environ, "REGISTRY_AUTH_FILE": str(tmp_path / "auth.json")}
        refused = run(cpu, "push", f"{host}/runner:1", env=environment, check=False)
        assert refused.returncode == 1
        assert f"{host} refused the credentials: `docker login {host}`" in refused.stderr.splitlines()[-1]


def test_a_registry_that_is_not_there_is_named(cpu):
    refused = run(cpu, "push", "127.0.0.1:1/runner:1", check=False)
    assert (refused.returncode, refused.stderr.startswith("127.0.0.1:1 cannot be reached")) == (1, True)


def test_a_full_disk_is_named(cpu):
    with Path("/dev/full").open("wb") as full:
        refused = subprocess.run([cpu], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (refused.returncode, refused.stderr.splitlines()[-1].startswith("A disk is full:")) == (1, True)


def test_a_models_image_is_pushed_as_a_config(host, directory, tmp_path):
    before = stored_bytes(directory)
    config = {
        "engine": "ctranslate2",
        "model": "owner/name",
        "instantiate": {"weights": "https://example.com/engine.tar", "system_prompt": "Be brief."},
    }
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    names = ["--base", f"{host}/runner:1", "--dest", f"{host}/model:1"]
    run(".venv/bin/cog-triton", "instantiate", tmp_path / "config.yaml", *names)
    manifest = json.loads(pulled_manifest(f"{host}/model:1"))
    base = json.loads(pulled_manifest(f"{host}/runner:1"))
    assert manifest["layers"] == base["layers"]
    assert stored_bytes(directory) - before < MODEL_BYTES
    inspected = run("skopeo", *INSPECT, f"docker://{host}/model:1").stdout
    environment = json.loads(inspected)["config"]["Env"]
    assert {"COG_WEIGHTS=https://example.com/engine.tar", "SYSTEM_PROMPT=Be brief."} < set(environment)


def test_the_tag_of_a_models_image_never_names_the_bare_base(cpu, host, tmp_path):
    """In a registry that has no layer of it yet."""
    section = {"weights": "https://example.com/engine.tar"}
    config = {"engine": "ctranslate2", "model": "owner/name", "instantiate": section}
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    base = run(cpu, "digest").stdout.strip()
    with registry(tmp_path) as other:
        names = ["--base", f"{host}/runner:1", "--dest", f"{other}/model:live"]
        run(".venv/bin/cog-triton", "instantiate", tmp_path / "config.yaml", *names)
        labels = json.loads(run("skopeo", *INSPECT, f"docker://{other}/model:live").stdout)["config"][
            "Labels"
        ]
    put = re.findall(r'"PUT /v2/model/manifests/(\S+) ', (tmp_path / "registry.log").read_text())
    assert put == [base, "live"]
    assert labels["org.opencontainers.image.base.name"] == f"{host}/runner:1"
    assert labels["org.opencontainers.image.base.digest"] == base
