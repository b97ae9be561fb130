"""Folders of models that nobody should trust, and what of them is refused before anything works on it."""

import json
import os
import shutil
import tarfile
from pathlib import Path

import pytest

from builder.check.source import check_source
from builder.pipeline import build
from builder.sources.download import Download
from shared.errors import CheckpointInvalid, ConfigCheckFailed, ModelFolderUnusable

DEEP = '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}"
LONG = '{"a": ' + "9" * 100_000 + "}"


def ignore(done, total=None):
    pass


def load(model_dir, state, **options):
    Download(str(model_dir), **options).run(state, ignore)


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "generation_config.json", "model.safetensors", "merges.txt"]
)
@pytest.mark.timeout(20)
def test_a_pipe_is_not_waited_for(model_dir, state, name):
    (model_dir / name).unlink(missing_ok=True)
    os.mkfifo(model_dir / name)
    with pytest.raises(ModelFolderUnusable, match=f"{name} in it is not a file"):
        load(model_dir, state)


@pytest.mark.parametrize(
    "name",
    ["config.json", "tokenizer.json", "generation_config.json", "chat_template.jinja", "model.safetensors"],
)
def test_a_pointer_of_git_lfs_is_named(model_dir, state, name):
    (model_dir / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:a\nsize 123\n")
    with pytest.raises(CheckpointInvalid, match=f"{name} is a Git LFS pointer"):
        load(model_dir, state)
    assert [one.code for one in check_source(f"data:,{{engine: vllm, model: {model_dir}}}").errors] == [
        "E3201"
    ]


def test_a_folder_is_no_file(model_dir, state):
    (model_dir / "special_tokens_map.json").mkdir()
    with pytest.raises(ModelFolderUnusable, match=r"special_tokens_map\.json in it is not a file"):
        load(model_dir, state)


@pytest.mark.parametrize("name", ["special_tokens_map.json", "config.json", "model.safetensors"])
@pytest.mark.parametrize("target", ["../secret", "{}/secret", "/proc/self/environ"])
def test_a_link_that_leaves_the_folder_is_not_followed(model_dir, state, name, target):
    (model_dir.parent / "secret").write_text("{}")
    (model_dir / name).unlink(missing_ok=True)
    (model_dir / name).symlink_to(target.format(model_dir.parent))
    with pytest.raises(ModelFolderUnusable, match=f"{name} is a link that leads out"):
        load(model_dir, state)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_link_to_itself_is_no_file(model_dir, state, name):
    (model_dir / name).unlink()
    (model_dir / name).symlink_to(name)
    with pytest.raises(ModelFolderUnusable, match=f"{name} in it is not a file"):
        load(model_dir, state)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
@pytest.mark.parametrize("refused", ["stat", "open"])  # by its folder, or by the file
def test_what_this_user_may_not_read_is_named(model_dir, state, monkeypatch, name, refused):
    real = getattr(Path, refused)

    def refusing(path, *args, **kwargs):
        if path.name == name:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *args, **kwargs)

    monkeypatch.setattr(Path, refused, refusing)
    told = rf"{name} in it cannot be read: this user has no permission to read it\. Check .* the permissions"
    with pytest.raises(ModelFolderUnusable, match=told):
        load(model_dir, state)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer.model", "merges.txt"])
def test_what_is_read_as_a_whole_has_a_limit(model_dir, state, name):
    """A tokenizer.json of 8 GB, most of it a hole, was read for a minute, into as much memory."""
    with (model_dir / name).open("ab") as file:
        file.truncate(1 << 30)
    with pytest.raises(CheckpointInvalid, match=f"{name} has more than 268435456 bytes"):
        load(model_dir, state)


def test_links_inside_the_folder_and_to_the_folder_are_fine(model_dir, state, tmp_path):
    (model_dir / "weights").mkdir()
    (model_dir / "model.safetensors").rename(model_dir / "weights/1")
    (model_dir / "model.safetensors").symlink_to("weights/1")
    (tmp_path / "link").symlink_to(model_dir)
    load(tmp_path / "link", state)
    assert state.model.path == model_dir


def test_a_folder_of_the_hubs_cache_is_a_model(hub, state):
    Download("someone/tiny").run(state, ignore)
    snapshot = state.model.path
    assert (snapshot / "config.json").is_symlink()
    load(snapshot, state)
    assert state.model.path == snapshot


def test_a_link_in_the_hubs_cache_leads_to_the_same_model(hub, state, tmp_path):
    Download("someone/tiny").run(state, ignore)
    (tmp_path / "secret").write_text("{}")
    (state.model.path / "config.json").unlink()
    (state.model.path / "config.json").symlink_to(tmp_path / "secret")
    with pytest.raises(ModelFolderUnusable):
        load(state.model.path, state)


@pytest.mark.parametrize("text", [DEEP, LONG, "[]", "{", "\x00", ""])
@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "generation_config.json"])
def test_json_that_cannot_be_read(model_dir, state, name, text):
    (model_dir / name).write_text(text)
    with pytest.raises(CheckpointInvalid, match=f"{name} is not"):
        load(model_dir, state)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{{ " + "(" * 10_000 + ")" * 10_000 + " }}", "nested too deeply"),
        ("{{ x }}" * 200_000, "more than 1048576 characters"),
        ("{% raise %}", "not valid"),
    ],
)
def test_a_chat_template_that_no_runner_would_take(model_dir, state, template, told):
    (model_dir / "chat_template.jinja").write_text(template)
    with pytest.raises(CheckpointInvalid, match=told):
        load(model_dir, state)


@pytest.mark.timeout(20)
def test_a_chat_template_is_not_run(model_dir, state):
    """Jinja computes constants when it compiles one."""
    (model_dir / "chat_template.jinja").write_text("{{ 9 ** 9 ** 9 }}")
    load(model_dir, state)
    assert state.model is not None


@pytest.mark.parametrize("key", ["num_hidden_layers", "vocab_size", "num_attention_heads"])
@pytest.mark.parametrize("section", [None, "text_config"])
def test_sizes_that_no_model_has(model_dir, state, key, section):
    sizes = {key: 10**9}
    (model_dir / "config.json").write_text(json.dumps({section: sizes} if section else sizes))
    with pytest.raises(CheckpointInvalid, match=f"{key} 1000000000"):
        load(model_dir, state)


def test_a_model_of_the_hub_is_looked_at_too(hub, model_dir, state):
    (model_dir / "config.json").write_text('{"num_hidden_layers": 1000000000}')
    with pytest.raises(CheckpointInvalid):
        Download("someone/tiny").run(state, ignore)


def test_nothing_of_another_folder_gets_into_an_archive(tmp_path, model_dir):
    shutil.copy(model_dir / "config.json", tmp_path / "secret")
    words = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}
    tokenizer = {"version": "1.0", "added_tokens": [], "model": words}
    (model_dir / "tokenizer.json").write_text(json.dumps(tokenizer))
    (model_dir / "special_tokens_map.json").symlink_to(tmp_path / "secret")
    config = tmp_path / "config.yaml"
    config.write_text("engine: mock\nmodel: published\n")
    with pytest.raises(ConfigCheckFailed, match="E3107"):
        build(str(config), tmp_path / "engine.tar")
    (model_dir / "special_tokens_map.json").unlink()
    (model_dir / "chat_template.json").write_text('{"chat_template": "x"}')
    build(str(config), tmp_path / "engine.tar")
    with tarfile.open(tmp_path / "engine.tar") as archive:
        assert "tokenizer/chat_template.json" in archive.getnames()
        assert "tokenizer/special_tokens_map.json" not in archive.getnames()
