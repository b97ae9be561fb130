"""What `./result` says of files and folders that are not there."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from nix.oci.problem import Problem


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
