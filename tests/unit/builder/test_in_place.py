"""The folder of links from which a vLLM engine is served where its model is."""

from __future__ import annotations

import pytest

from builder.in_place import in_place
from shared.config import load_config
from shared.layout import PROJECT_ROOT


def made(tmp_path):
    """The folder, and what is in it: of links, where they lead."""
    config = load_config(f'engine: vllm\nmodel: "{PROJECT_ROOT / "demo/model"}"\n', "config.yaml")
    folder = in_place(config, tmp_path / "cache")
    files = [path for path in folder.rglob("*") if not path.is_dir()]
    return folder, {path: path.readlink() if path.is_symlink() else path.read_bytes() for path in files}


def test_what_is_whole_stays(tmp_path):
    folder, _ = made(tmp_path)
    inode = folder.stat().st_ino
    assert made(tmp_path)[0].stat().st_ino == inode
    assert list((tmp_path / "cache").iterdir()) == [folder]


@pytest.mark.parametrize("name", ["manifest.json", "config.json", "engine/model.safetensors"])
@pytest.mark.parametrize("is_empty", [True, False])
def test_what_is_damaged_is_made_again(tmp_path, name, is_empty):
    folder, before = made(tmp_path)
    (folder / name).unlink()
    if is_empty:
        (folder / name).touch()
    assert made(tmp_path) == (folder, before)
    assert list((tmp_path / "cache").iterdir()) == [folder]
