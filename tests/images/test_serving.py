"""The CPU's runner in a container, from the demo's engine to streamed text."""

import json
import os
import re
import secrets
import ssl

import httpx2
import pytest

from demo.cog_client import PredictionClient
from tests.support.files import CERTIFICATE, FileServer
from tests.support.images import CPU, LIMITS, build_image, container, podman, run, shared_directory

BUNDLE = "/etc/ssl/certs/ca-certificates.crt"


@pytest.fixture(scope="module")
def image(cpu):
    run(cpu, "load")
    return CPU


def test_loading_makes_only_what_podman_lacks(cpu, checkout, tmp_path, image):
    """And no gzip: podman gets the tars that the image's config names."""
    elsewhere = tmp_path / "No name_: of an image"
    elsewhere.mkdir()
    again = run(cpu, "load", env={**os.environ, "TMPDIR": str(elsewhere)}).stderr.splitlines()
    assert [line for line in again if "sending" in line] == []
    module = checkout / "runner/__init__.py"
    module.write_text(f"{module.read_text()}\n# {secrets.token_hex(8)}, which podman has never seen\n")
    changed = build_image(CPU, tmp_path / "changed", root=checkout)
    told = run(changed, "load").stderr
    assert re.findall(r"^(\S+): sending", told, re.MULTILINE) == ["application-runner"]
    podman("rmi", CPU)
    run(cpu, "load")
    names = json.loads(podman("image", "inspect", image).stdout)[0]["RepoTags"]
    digest = run(cpu, "digest").stdout.strip().removeprefix("sha256:")
    assert sorted(names) == sorted(
        [f"docker.io/library/{CPU}:latest", f"docker.io/library/{CPU}:{digest[:12]}"]
    )
    assert podman("image", "inspect", image, "--format={{.Id}}").stdout.strip() == config_digest(
        cpu, tmp_path
    )


def config_digest(result, tmp_path):
    run(result, "layout", tmp_path / "layout")
    digest = json.loads((tmp_path / "layout/index.json").read_text())["manifests"][0]["digest"]
    manifest = json.loads((tmp_path / "layout/blobs" / digest.replace(":", "/")).read_text())
    return manifest["config"]["digest"].removeprefix("sha256:")


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
        page = httpx2.get(server.url, headers={"accept": "text/html"}).text
        files = [
            httpx2.get(f"{server.url}/{path}").status_code for path in re.findall(r"page/\w+[.]\w+", page)
        ]
    assert "".join(chunks) == demo["text"]
    assert len(chunks) > 1
    assert files == [200] * 3  # the page for browsers is in the image


def test_a_mounted_model_repository_is_served_by_cogs_own_command(image, engine, demo, tmp_path_factory):
    unpacked = shared_directory(tmp_path_factory, "unpacked")
    run("tar", "xf", engine / "engine.tar", "-C", unpacked)
    mounted = f"--volume={unpacked}:/src/triton_model_repo/tensorrt_llm/1:ro"
    with container(image, mounted, command=("python", "-m", "cog.server.http")) as server:
        assert server.wait_ready()["status"] == "READY"
        assert "".join(answer(server, demo)) == demo["text"]


def test_without_an_engine_it_says_what_to_set(image):
    with container(image) as server:
        health = server.wait_ready()
    assert health["status"] == "SETUP_FAILED"
    assert "E4201" in health["setup"]["logs"]
    assert "COG_WEIGHTS" in health["setup"]["logs"]


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


@pytest.fixture
def https(engine):
    """The engine behind TLS, with a certificate of an authority that only a company knows."""
    server = FileServer(engine / "engine.tar")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    with server:
        yield f"--env=COG_WEIGHTS={server.url.replace('http://', 'https://')}"


@pytest.fixture
def companys(image, tmp_path_factory):
    """A folder with the authorities of the image and a company's in one file."""
    folder = shared_directory(tmp_path_factory, "certificates")
    known = podman("run", "--rm", *LIMITS, image, "cat", BUNDLE).stdout
    _, begin, own = CERTIFICATE.read_text().partition("-----BEGIN CERTIFICATE-----")
    (folder / "bundle.crt").write_text(known + begin + own)
    return folder


def test_the_authorities_of_the_image_are_trusted(image):
    script = f"import ssl; print(len(ssl.create_default_context().get_ca_certs()), open('{BUNDLE}').read().count('BEGIN'))"
    trusted, there = podman("run", "--rm", *LIMITS, image, "python", "-c", script).stdout.split()
    assert int(trusted) == int(there) > 100


def test_weights_arrive_over_tls_from_a_companys_server(image, https, companys):
    options = ["--volume=/var/cache/cog-triton", f"--volume={companys}/bundle.crt:{BUNDLE}:ro"]
    with container(image, https, *options) as server:
        assert server.wait_ready()["status"] == "READY", server.logs()


def test_weights_arrive_over_tls_in_an_image_with_the_companys_authority(image, https, companys):
    (companys / "Containerfile").write_text(f"FROM {image}\nCOPY bundle.crt {BUNDLE}\n")
    podman("build", "--isolation=chroot", "--tag=with-authority", companys)
    try:
        with container("with-authority", https, "--volume=/var/cache/cog-triton") as server:
            assert server.wait_ready()["status"] == "READY", server.logs()
    finally:
        podman("rmi", "--force", "with-authority")


def test_a_server_whose_authority_nobody_knows_is_refused(image, https):
    with container(image, https, "--volume=/var/cache/cog-triton") as server:
        health = server.wait_ready()
    assert health["status"] == "SETUP_FAILED"
    assert "the server's certificate is not trusted" in health["setup"]["logs"]
