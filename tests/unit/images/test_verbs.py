"""What `./result` says of files and folders that are not there."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from nix.oci.problem import Problem
from nix.oci.registry import Registry, _credentials


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
    with pytest.raises(Problem, match=r"none.json cannot be read: No such file or directory\."):
        verbs._attach(None, "", "host/image:tag", Path("none.json"))


@pytest.fixture
def run(verbs, monkeypatch):
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
def test_what_cannot_be_written_is_one_line(run, error, told):
    assert told in run("layout", "here", write_layout=raises(error), _forget_output=lambda: None)


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ("localhost:port/x", "localhost:port/x cannot be an address: write host/repository:tag."),
        (f"{'a' * 64}/x", "cannot be an address: write host/repository:tag."),
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
