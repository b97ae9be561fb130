"""What `./result` says of files and folders that are not there."""

import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from nix.oci import program
from nix.oci.image import Blob, Image
from nix.oci.problem import Problem
from nix.oci.registry import _HUBS_LOGIN, Registry, _credentials
from shared.layout import PROJECT_ROOT
from tests.support.waiting import wait_for

IMAGE = Image("image", [], Blob(b"config"), Blob(b"{}"), "skopeo")
# A result whose image has no layers; its first argument is the program in skopeo's place.
RESULT = """
import sys
from types import ModuleType
sys.modules["deflate"] = ModuleType("deflate")
from nix.oci import verbs
from tests.unit.images.test_verbs import IMAGE
verbs.Image.of = lambda spec: IMAGE
verbs.main({"name": "result", "skopeo": sys.argv.pop(1), "created": ""})
"""


@pytest.fixture
def verbs(monkeypatch):
    """Their module, without the compressor, which is in the images' toolchain alone."""
    monkeypatch.setitem(sys.modules, "deflate", ModuleType("deflate"))
    return import_module("nix.oci.verbs")


def test_a_folder_that_cannot_be_made(verbs, tmp_path):
    place = tmp_path / "none/layout"
    with pytest.raises(Problem, match=f"{place} cannot be made: No such file or directory."):
        verbs.write_layout(None, place, print)


def test_a_provenance_that_is_not_there(verbs, monkeypatch):
    monkeypatch.setattr(verbs, "spdx", lambda *_: "")
    monkeypatch.setattr(verbs, "openvex", lambda _: "")
    with pytest.raises(Problem, match=r"none.json cannot be read: No such file or directory\."):
        verbs._attach(None, "", "host/image:tag", Path("none.json"))


@pytest.fixture
def handlers():
    """Those of signals are again what they were."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def run(verbs, handlers, monkeypatch):
    def run(*arguments, **instead):
        monkeypatch.setattr(sys, "argv", ["result", *arguments])
        monkeypatch.setattr(verbs.Image, "of", lambda _: None)
        for name, value in instead.items():
            monkeypatch.setattr(verbs, name, value)
        with pytest.raises(SystemExit) as ended:
            verbs.main({"name": "result", "skopeo": "skopeo", "created": ""})
        return ended.value.code

    return run


def raises(error):
    def fail(*_):
        raise error

    return fail


def test_an_interrupted_verb_says_nothing(run):
    assert run("load", load=raises(KeyboardInterrupt())) == 130


@pytest.mark.parametrize("place", ["a" * 256, "link"])
def test_a_layout_that_cannot_be_there_is_named(verbs, tmp_path, place):
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(Problem, match=r"File name too long\.|exists already: choose a new directory\."):
        verbs.write_layout(None, tmp_path / place, print)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (PermissionError(13, "Permission denied", "/layer"), "/layer cannot be used: Permission denied."),
        (OSError(5, "Input/output error"), "The output cannot be written: Input/output error."),
        (
            FileNotFoundError(2, "No usable temporary directory found in ['/tmp']"),
            "set TMPDIR to one with room",
        ),
    ],
)
def test_what_cannot_be_written_is_one_line(run, monkeypatch, error, told):
    monkeypatch.setattr(program, "_forget_output", lambda: None)
    assert told in run("layout", "here", write_layout=raises(error))


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ("localhost:port/x", "localhost:port/x cannot be an address: write host/repository:tag."),
        (f"{'a' * 64}.b/x", "cannot be an address: write host/repository:tag."),
        ("localhost:1/x", "localhost:1 cannot be reached; try again: Connection refused."),
    ],
)
def test_a_registry_that_is_none_is_named_without_pythons_words(monkeypatch, reference, told):
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(Problem) as problem:
        Registry(reference).manifest("latest")
    assert str(problem.value).endswith(told)


def test_a_login_helper_that_is_missing_is_named(monkeypatch, tmp_path):
    (tmp_path / "auth.json").write_text('{"credsStore": "none-here"}')
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "auth.json"))
    with pytest.raises(Problem, match="docker-credential-none-here, which cannot be started: No such file"):
        _credentials("host")


def test_a_file_that_may_not_be_read_is_not_a_refusal_of_the_registry(verbs):
    explain = sys.modules[verbs.push.__module__].explain
    complaint = 'level=fatal msg="open /auth.json: permission denied"'
    assert (
        explain(complaint, "host/a:b") == "host/a:b could not be pushed: open /auth.json: permission denied"
    )


@pytest.mark.parametrize(
    ("reference", "reason", "told"),
    [
        ("h:1/geoffrey/a:1", "h:1/geoffrey/a: received unexpected HTTP status: 500", "could not be pushed"),
        ("h:1/a:403", "uploading manifest 403 to h:1/a: received status 500", "could not be pushed"),
        ("h:1/denied:1", 'Get \\"https://h:1/v2/denied/\\": EOF', "cannot be reached; what has arrived"),
        ("h:403/a:1", "pinging container registry h:403: too many requests", "could not be pushed"),
        ("h:1/a:1", "uploading layer chunked: StatusCode: 403, <html>", "refused the credentials"),
        ("h:1/a:1", "write tcp 1.1.1.1:1->2.2.2.2:2: write: broken pipe", "cannot be reached; what has"),
        (
            "h:1/a:1",
            "x509: certificate signed by unknown authority",
            "The certificate of h:1 is not trusted; if an authority",
        ),
    ],
)
def test_what_skopeo_says_is_understood_and_names_in_it_are_not(verbs, reference, reason, told):
    explain = sys.modules[verbs.push.__module__].explain
    assert told in explain(f'time="now" level=fatal msg="writing blob: {reason}"', reference)


def test_what_an_address_of_an_upload_is_signed_with_is_not_shown(verbs):
    explain = sys.modules[verbs.push.__module__].explain
    complaint = r'level=fatal msg="Patch \"https://h/v2/a/blobs/uploads/1?sig=s3cret%3D&x=1\": broken pipe"'
    assert explain(complaint, "h.b/a:1").endswith('Patch "https://h/v2/a/blobs/uploads/1": broken pipe')


@pytest.mark.parametrize("reference", ["image:1", "acme/image:1", "https://host.b/image:1", "host.b", ""])
def test_a_name_without_a_host_is_not_pushed_to_dockers_hub(verbs, reference):
    with pytest.raises(Problem, match="does not name a repository: write host/repository:tag"):
        verbs.push(IMAGE, reference, "/none", print)


def test_a_closed_output_is_no_place_for_an_archive(verbs, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(Problem, match="pipe it into `docker load`"):
        verbs._stream(IMAGE)


def test_what_is_told_never_gets_into_the_archive(verbs, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stderr", None)
    verbs._tell("layer: 1 MB")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_push_that_is_ended_leaves_nothing(tmp_path, number):
    scratch, mark, skopeo = tmp_path / "scratch", tmp_path / "mark", tmp_path / "skopeo"
    scratch.mkdir()
    skopeo.write_text(f"#!/bin/sh\necho $$ > {mark}\nexec sleep 60\n")
    skopeo.chmod(0o755)
    command = [sys.executable, "-c", RESULT, skopeo, "push", "host.b/image:1"]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT), "TMPDIR": str(scratch)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as running:
        wait_for(lambda: mark.exists() and mark.read_text())
        running.send_signal(number)
        assert running.communicate()[1] == ""
    assert running.returncode == 128 + number
    assert list(scratch.iterdir()) == []
    assert not Path(f"/proc/{mark.read_text().strip()}").exists()


STARTING = """
import signal
from nix.oci.program import running, unbroken
with running():
    with unbroken():
        signal.raise_signal(signal.SIGTERM)
        print("started")
    print("more")
"""


def test_what_ends_a_program_while_it_starts_another_comes_afterwards():
    """The other was not known yet, and went on alone."""
    command = [sys.executable, "-c", STARTING]
    done = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGTERM, "started\n", "")


def test_a_user_without_a_home_has_no_credentials(monkeypatch):
    def unknown(uid):
        raise KeyError(uid)

    monkeypatch.setattr("pwd.getpwuid", unknown)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    for name in ("HOME", "DOCKER_CONFIG", "REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert _credentials("host.b") == ""


def test_dockers_hub_is_asked_where_it_answers_with_what_docker_login_keeps(monkeypatch):
    hub = Registry("docker.io/acme/image:1")
    assert hub._base == "https://registry-1.docker.io/v2/acme/image/"
    monkeypatch.setattr("nix.oci.registry._credentials", {_HUBS_LOGIN: "dTpw"}.get)
    assert hub._authorize('Basic realm="x"') == "Basic dTpw"
