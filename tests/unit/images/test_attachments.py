"""What is attached to an image: in a registry that lists it, in one that does not, and behind a token."""

import base64
import hashlib
import json
import os
import re
import ssl
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from nix.oci.attachments import PROVENANCE, SBOM, attach, attached, read
from nix.oci.image import Blob, Image
from nix.oci.problem import Problem
from shared.layout import PROJECT_ROOT
from tests.support.loopback import LoopbackServer, QuietHandler

IMAGE = Image("image", [], Blob(b"config"), Blob(b'{"schemaVersion":2}'), "skopeo")
LOGIN = base64.b64encode(b"user:secret").decode()


class Registry:
    """Blobs and manifests of one repository; `lists` says whether it knows referrers."""

    def __init__(self, *, lists, token=""):
        self.lists = lists
        self.token = token
        self.blobs = {}
        self.manifests = {IMAGE.manifest.digest: IMAGE.manifest.content, "1": IMAGE.manifest.content}
        self.asked_for_tokens = []
        self.cut = ""
        """Of what answers are cut short."""
        self.moved = ""
        """What is elsewhere, for those who write it."""
        self.place = "/v2/a/image/blobs/uploads/1?state=x"
        """Where blobs are to be put."""
        self.realm = ""
        """Where tokens are, if not in this registry."""
        self.broken = b""
        """What is sent, as it is, in place of every answer."""
        self.fails = 0
        """The status of answers about tokens, if they are not to be had."""


def handler(registry):
    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def answer(self, status, content=b"", **headers):
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            if self.command == "GET" and registry.cut and registry.cut in self.path:
                content = content[: len(content) // 2]
                self.close_connection = True
            self.wfile.write(content if self.command != "HEAD" else b"")

        def do_GET(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if registry.broken:
                self.close_connection = True
                return self.wfile.write(registry.broken)
            if self.path.startswith("/token"):
                registry.asked_for_tokens.append(self.path)
                if registry.fails:
                    return self.answer(registry.fails)
                right = self.headers.get("Authorization") == f"Basic {LOGIN}"
                return (
                    self.answer(200, json.dumps({"token": registry.token}).encode())
                    if right
                    else self.answer(403)
                )
            if registry.token and self.headers.get("Authorization") != f"Bearer {registry.token}":
                realm = registry.realm or f"http://{self.headers['Host']}/token"
                challenge = f'Bearer realm="{realm}",service="s",scope="repository:a/image:pull,push"'
                return self.answer(401, WWW_Authenticate=challenge)
            return self.api(self.path.removeprefix("/v2/a/image/"), body)

        do_HEAD = do_POST = do_PUT = do_GET

        def api(self, path, body):
            kind, _, name = path.partition("/")
            match self.command, kind:
                case "PUT", registry.moved:
                    self.answer(307, Location=f"/elsewhere/{path}")
                case "POST", "blobs":
                    self.answer(202, Location=registry.place)
                case "PUT", "blobs":
                    digest = path.partition("digest=")[2].replace("%3A", ":")
                    registry.blobs[digest] = body
                    self.answer(201 if digest == f"sha256:{hashlib.sha256(body).hexdigest()}" else 400)
                case "PUT", "manifests":
                    registry.manifests[name] = body
                    subject = json.loads(body).get("subject", {}).get("digest", "")
                    self.answer(201, **({"OCI_Subject": subject} if registry.lists and subject else {}))
                case _, "referrers" if registry.lists:
                    listed = [
                        {"digest": digest, "artifactType": json.loads(content)["artifactType"]}
                        for digest, content in registry.manifests.items()
                        if json.loads(content).get("subject", {}).get("digest") == name
                    ]
                    self.answer(200, json.dumps({"manifests": listed}).encode())
                case _:
                    found = {"blobs": registry.blobs, "manifests": registry.manifests}.get(kind, {}).get(name)
                    self.answer(404) if found is None else self.answer(200, found)

    return Handler


@contextmanager
def serving(registry):
    with LoopbackServer(handler(registry)) as server:
        yield f"127.0.0.1:{server.server_port}/a/image:1"


@pytest.mark.parametrize("lists", [True, False])
def test_what_is_attached_can_be_read(lists):
    registry = Registry(lists=lists)
    with serving(registry) as reference:
        attach(IMAGE, reference, SBOM, b"old")
        digest = attach(IMAGE, reference, SBOM, b"the contents")
        attach(IMAGE, reference, PROVENANCE, b"the making")
        assert [row["artifactType"] for row in attached(reference)] == [SBOM, SBOM, PROVENANCE]
        assert (read(reference, SBOM), read(reference, PROVENANCE)) == (b"the contents", b"the making")
    manifest = json.loads(registry.manifests[digest])
    assert manifest["subject"] == IMAGE.manifest.described("application/vnd.oci.image.manifest.v1+json")
    # Where the registry lists, a tag would only be litter.
    assert (IMAGE.manifest.digest.replace(":", "-") in registry.manifests) is not lists


def test_attaching_again_changes_nothing():
    registry = Registry(lists=False)
    with serving(registry) as reference:
        attach(IMAGE, reference, SBOM, b"the contents")
        before = dict(registry.manifests)
        attach(IMAGE, reference, SBOM, b"the contents")
    assert registry.manifests == before


def test_an_image_that_is_not_there_is_named():
    registry = Registry(lists=False)
    registry.manifests.clear()
    with serving(registry) as reference, pytest.raises(Problem, match="push the image first"):
        attach(IMAGE, reference, SBOM, b"")
    assert not registry.blobs


def test_a_token_is_asked_for_with_the_credentials_of_docker_login(tmp_path, monkeypatch):
    registry = Registry(lists=True, token="t0ken")
    with serving(registry) as reference:
        kept = {"auths": {reference.partition("/")[0]: {"auth": LOGIN}}}
        (tmp_path / "auth.json").write_text(json.dumps(kept))
        monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "auth.json"))
        attach(IMAGE, reference, SBOM, b"the contents")
        assert "scope=repository%3Aa%2Fimage%3Apull%2Cpush" in registry.asked_for_tokens[0]
        (tmp_path / "auth.json").write_text("{}")
        with pytest.raises(Problem, match="refused the credentials for a/image: `docker login 127"):
            attach(IMAGE, reference, SBOM, b"the contents")


def test_a_registry_that_is_not_there_is_named():
    with pytest.raises(Problem, match=r"127\.0\.0\.1:1 cannot be reached"):
        attach(IMAGE, "127.0.0.1:1/a/image:1", SBOM, b"")


def test_a_name_without_a_repository_is_refused():
    with pytest.raises(Problem, match="does not name a repository"):
        attached("image")


@pytest.mark.parametrize(
    "part", ["/blobs/", "/manifests/1", "/manifests/sha256:", "/manifests/sha256-", "/referrers/"]
)
def test_an_answer_that_is_cut_short_is_not_taken_for_whole(part):
    registry = Registry(lists="referrers" in part)
    with serving(registry) as reference:
        attach(IMAGE, reference, SBOM, b"the contents")
        registry.cut = part
        with pytest.raises(Problem, match="try again: its answer is cut short"):
            read(reference, SBOM)


@pytest.mark.parametrize("part", ["blobs", "manifests"])
def test_something_else_under_a_digest_is_not_taken_for_it(part):
    registry = Registry(lists=True)
    with serving(registry) as reference:
        digest = attach(IMAGE, reference, SBOM, b"the contents")
        digest = digest if part == "manifests" else f"sha256:{hashlib.sha256(b'the contents').hexdigest()}"
        getattr(registry, part)[digest] += b" "
        with pytest.raises(Problem, match=f"sends something else for {digest}: try again"):
            read(reference, SBOM)


@pytest.mark.parametrize("part", ["blobs", "manifests"])
def test_what_is_redirected_is_not_taken_for_stored(part):
    registry = Registry(lists=True)
    registry.moved = part
    with (
        serving(registry) as reference,
        pytest.raises(Problem, match=f"answers 307 to PUT /v2/a/image/{part}/"),
    ):
        attach(IMAGE, reference, SBOM, b"the contents")


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (b'{"manifests": null}', "Nothing of the type"),
        (b"{}", "Nothing of the type"),
        (b"[]", "does not answer as a registry does"),
        (b"<html>", "does not answer as a registry does"),
        (b'{"manifests": [1]}', "does not answer as a registry does"),
        (b'{"manifests": [{"artifactType": "t"}]}', "does not answer as a registry does"),
        (b'{"manifests": [{"artifactType": "t", "digest": "sha256:0"}]}', "attach it again"),
    ],
)
def test_an_odd_list_is_told(index, text):
    registry = Registry(lists=False)
    registry.manifests[IMAGE.manifest.digest.replace(":", "-")] = index
    with serving(registry) as reference, pytest.raises(Problem, match=text):
        read(reference, "t")


@pytest.mark.parametrize(
    "kept",
    [
        "[]",
        '{"auths": null}',
        '{"auths": {"HOST": "x"}}',
        '{"auths": []}',
        '{"credHelpers": null}',
        '{"credsStore": 1}',
    ],
)
def test_odd_files_of_credentials_hold_none(tmp_path, monkeypatch, kept):
    registry = Registry(lists=True, token="t0ken")
    with serving(registry) as reference:
        (tmp_path / "auth.json").write_text(kept.replace("HOST", reference.partition("/")[0]))
        monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "auth.json"))
        with pytest.raises(Problem, match="refused the credentials"):
            attached(reference)


@pytest.mark.parametrize("answer", ["nothing", "{}", "[]"])
def test_a_program_that_does_not_answer_with_credentials_is_named(tmp_path, monkeypatch, answer):
    registry = Registry(lists=True, token="t0ken")
    (tmp_path / "docker-credential-odd").write_text(f"#!/bin/sh\necho '{answer}'\n")
    (tmp_path / "docker-credential-odd").chmod(0o755)
    (tmp_path / "auth.json").write_text('{"credsStore": "odd"}')
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "auth.json"))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with (
        serving(registry) as reference,
        pytest.raises(Problem, match="docker-credential-odd answers with something"),
    ):
        attached(reference)


def test_a_failure_where_tokens_are_is_not_blamed_on_the_credentials():
    registry = Registry(lists=True, token="t0ken")
    registry.fails = 503
    with serving(registry) as reference, pytest.raises(Problem, match="answers 503 to GET /token: "):
        attached(reference)


@pytest.mark.parametrize("place", ["file:///etc/hostname", "data:,{}", "http://[", ""])
def test_only_http_leads_on_from_a_registry(place):
    registry = Registry(lists=True)
    registry.place = place
    with serving(registry) as reference, pytest.raises(Problem, match="does not answer as a registry does"):
        attach(IMAGE, reference, SBOM, b"the contents")
    registry = Registry(lists=True, token="t0ken")
    registry.realm = place or "ftp://127.0.0.1/"
    with serving(registry) as reference, pytest.raises(Problem, match="does not answer as a registry does"):
        attached(reference)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"500 No\r\nContent-Length: 9\r\n\r\nx", "answers 500 to GET"),
        (b"500 No\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "answers 500 to GET"),
        (b"200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nx", "try again: its answer is cut short"),
    ],
)
def test_an_answer_that_breaks_off_is_told(answer, told):
    registry = Registry(lists=True)
    registry.broken = b"HTTP/1.1 " + answer
    with serving(registry) as reference, pytest.raises(Problem, match=told):
        attached(reference)


def test_a_registry_on_this_machine_is_asked_without_a_proxy(monkeypatch):
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with serving(Registry(lists=True)) as reference:
        assert attached(reference) == []


def test_a_certificate_of_an_unknown_authority_is_told(monkeypatch):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(PROJECT_ROOT / "tests/support/loopback.pem")
    # Without TLS only where the address is that of this machine.
    monkeypatch.setattr("nix.oci.registry._LOCAL", re.compile("none"))
    with LoopbackServer(handler(Registry(lists=True))) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        with pytest.raises(Problem, match=r"is not trusted; .* SSL_CERT_FILE can name"):
            attached(f"127.0.0.1:{server.server_port}/a/image:1")


@pytest.mark.parametrize("kind", [[], [SBOM]])
def test_an_attachment_that_cannot_be_written_is_told(kind):
    with serving(Registry(lists=True)) as reference, Path("/dev/full").open("wb") as full:
        attach(IMAGE, reference, SBOM, b"the contents")
        command = [PROJECT_ROOT / "ci/attached", reference, *kind]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("A disk is full: make room where the output goes")
    assert done.stderr.count("\n") == 1
