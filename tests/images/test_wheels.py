"""What we install of wheels, against what PyPA's `installer` does."""

import json
from pathlib import Path

import pytest

from nix.oci import wheel
from nix.oci.tree import Tree
from tests.support.images import run

PLACE, PYTHON = "opt/env", "3.13"
# Run by the judges' Python: WHEEL ROOT.
INSTALL = f"""
import sys
from installer import install
from installer.destinations import SchemeDictionaryDestination
from installer.sources import WheelFile

site = "/{PLACE}/lib/python{PYTHON}/site-packages"
schemes = {{
    "purelib": site,
    "platlib": site,
    "scripts": "/{PLACE}/bin",
    "data": "/{PLACE}",
    "headers": "/{PLACE}/include/python{PYTHON}",
}}
destination = SchemeDictionaryDestination(schemes, "/{PLACE}/bin/python", "posix", destdir=sys.argv[2])
with WheelFile.open(sys.argv[1]) as source:
    install(source, destination, {{}})
"""


@pytest.fixture(scope="module")
def wheels(cpu):
    """The wheels that the layers of the CPU's runner are made of."""
    spec = cpu.read_text()
    records = [Path(word) for word in spec.split("'") if "-layer-" in word and word.startswith("/nix/store")]
    steps = [step for record in records for step in json.loads(record.read_text())["steps"]]
    return sorted({path for step in steps if step["do"] == "environment" for path in step["wheels"]})


def files(root):
    """Contents and executable bits; of a command, which each writes in its own words, only how it starts."""
    found = {}
    for path in root.rglob("*"):
        name = path.relative_to(root).as_posix()
        if path.is_file() and path.name not in {"RECORD", "INSTALLER"}:
            content = path.read_bytes()
            if path.parent == root / PLACE / "bin" and content.startswith(b"#!/opt/env"):
                content = content.partition(b"\n")[0]
            found[name] = (content, bool(path.stat().st_mode & 0o111))
    return found


def test_the_same_files_come_of_every_wheel(wheels, judges, tmp_path):
    assert len(wheels) > 50
    for number, path in enumerate(wheels):
        ours, theirs = (tmp_path / f"{number}-{who}" for who in ("ours", "theirs"))
        ours.mkdir()
        wheel.install(Tree(ours.resolve()), Path(path), PLACE, PYTHON, [])
        named = tmp_path / Path(path).name.partition("-")[2]  # without the hash of the store
        named.symlink_to(path)
        run(judges / "python", "-c", INSTALL, named, theirs)
        assert files(ours) == files(theirs), path
