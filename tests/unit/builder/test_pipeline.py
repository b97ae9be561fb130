import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
from structlog.testing import capture_logs

from builder import pipeline
from builder.package import Package
from builder.pipeline import build
from builder.plan import Plan
from builder.step import Build, Model
from shared.errors import (
    UNEXPECTED,
    ConfigInvalid,
    ConversionFailed,
    EngineNotInImage,
    HostMemoryExhausted,
    NotEnoughSpace,
    OutputRefused,
    PackageFailed,
    WorkFolderUnusable,
)
from shared.layout import PROJECT_ROOT, WITHOUT_ENVIRONMENT

MOCK = "data:,engine: mock"


def names(archive):
    with tarfile.open(archive) as tar:
        return tar.getnames()


def test_mock_archive(tmp_path):
    manifest = build(MOCK, tmp_path / "engine.tar")
    assert (manifest.engine, manifest.model, manifest.revision) == ("mock", "mock", None)
    assert names(tmp_path / "engine.tar") == [
        "manifest.json",
        "config.json",
        "engine/mock.json",
        "tokenizer/generation_config.json",
        "tokenizer/tokenizer.json",
        "tokenizer/tokenizer_config.json",
    ]


def test_mock_with_the_tokenizer_of_a_model(tmp_path, hub, model_dir):
    (model_dir / "tokenizer.json").write_text(json.dumps(TINY))
    (model_dir / "model.safetensors").unlink()
    manifest = build("data:,{engine: mock, model: someone/tiny}", tmp_path / "engine.tar")
    assert (manifest.model, manifest.revision) == ("someone/tiny", hub.repositories["someone/tiny"].commit)
    assert "tokenizer/config.json" in names(tmp_path / "engine.tar")


TINY = {
    "version": "1.0",
    "added_tokens": [],
    "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"},
}


def test_two_builds_are_the_same_bytes(tmp_path):
    build(MOCK, tmp_path / "one.tar")
    build(MOCK, tmp_path / "two.tar")
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()


def test_the_token_is_in_no_log_and_no_file(tmp_path, hub, model_dir):
    (model_dir / "tokenizer.json").write_text(json.dumps(TINY))
    with capture_logs() as logs:
        build("data:,{engine: mock, model: someone/tiny}", tmp_path / "engine.tar", hf_token="hf_do_not_tell")
    assert hub.tokens == {"hf_do_not_tell"}
    assert "hf_do_not_tell" not in str(logs)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in written if b"hf_do_not_tell" in path.read_bytes()]


def test_time_of_each_step_is_logged(tmp_path):
    with capture_logs() as logs:
        build(MOCK, tmp_path / "engine.tar")
    finished = [line for line in logs if line["event"] == "step finished"]
    assert [line["step"] for line in finished] == ["mock", "package"]
    assert all(line["seconds"] >= 0 for line in finished)


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("data:,{engine: mock, speed: 3}", ConfigInvalid),
        ("data:,{engine: ctranslate2, model: a/b}", EngineNotInImage),
    ],
)
def test_a_bad_config_writes_nothing(tmp_path, monkeypatch, source, error):
    monkeypatch.setenv("COG_TRITON_HOME", str(tmp_path / "no-engines-here"))
    with pytest.raises(error):
        build(source, tmp_path / "engine.tar", work_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (
            "missing/engine.tar",
            r"there is no directory .*missing\. Create it, or choose another file \(in the builder's API: with BUILDER_OUTPUT_DIR\)\.$",
        ),
        ("published", r"it is a directory\. Choose a file, such as .*/published/engine\.tar\.$"),
        ("config.yaml", "not written by a build"),
        ("published/model.safetensors", "not written by a build"),
        ("backup.tar", "not written by a build"),
        ("pipe", "not written by a build"),
        (
            "link.tar",
            r"it is a symbolic link, which the archive would replace\. Name the file that it points to",
        ),
        ("nowhere.tar", "it is a symbolic link"),
        ("a" * 256, "File name too long"),
        ("a" * 240, "File name too long"),  # while it is written, its name is longer
        ("app", r"app\.log: what is there was not written by a build"),
    ],
)
def test_an_output_that_is_none_is_refused_before_anything_is_fetched(
    tmp_path, hub, model_dir, output, reason
):
    config = tmp_path / "config.yaml"
    config.write_text("engine: mock\nmodel: someone/tiny\n")
    with tarfile.open(tmp_path / "backup.tar", "w") as backup:
        backup.add(config, "config.yaml")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "app.log").write_text("of another program\n")
    (tmp_path / "empty.tar").touch()
    (tmp_path / "link.tar").symlink_to("empty.tar")
    (tmp_path / "nowhere.tar").symlink_to("missing.tar")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(OutputRefused, match=reason):
        build(str(config), tmp_path / output)
    assert hub.requests == []
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert (tmp_path / "link.tar").is_symlink()
    assert (tmp_path / "nowhere.tar").is_symlink()


@pytest.mark.parametrize("name", ["engine.tar", "engine.tar.log"])
def test_what_another_user_has_built_in_a_folder_such_as_tmp_is_refused_at_once(tmp_path, monkeypatch, name):
    """It was found at the last step, or raised an error of Python's."""
    build(MOCK, tmp_path / "engine.tar")
    (tmp_path / "engine.tar").rename(tmp_path / name)
    if name.endswith(".log"):
        (tmp_path / name).write_text("== build: trtllm-build\n")
    tmp_path.chmod(0o1777)
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(OutputRefused, match=f"{name}: it is another user's"):
        build(MOCK, tmp_path / "engine.tar")


@pytest.mark.parametrize("name", ["tokenizer_config.json", "generation_config.json", "config.json"])
def test_a_file_of_the_model_that_is_removed_meanwhile_is_named(tmp_path, model_dir, name):
    """The archive was made without it: without the chat template, for one."""
    (model_dir / name).write_text("{}")
    state = Build(tmp_path, tmp_path / "engine.tar", None)
    state.model = Model("tiny", None, model_dir)
    (model_dir / name).unlink()
    with pytest.raises(PackageFailed, match=f"tokenizer/{name}: No such file"):
        Package("mock", {}).run(state, lambda _done, _total: None)
    assert not (tmp_path / "engine.tar").exists()


def test_another_users_unfinished_archive_is_left(tmp_path, monkeypatch):
    """In a folder such as /tmp; each build failed at its last step."""
    other = tmp_path / ".engine.tar.0123abcd.partial"
    other.touch()
    os.utime(other, (1, 1))
    unlink = Path.unlink

    def refuse(path, **more):
        if path == other:
            raise PermissionError(1, "Operation not permitted")
        unlink(path, **more)

    monkeypatch.setattr(Path, "unlink", refuse)
    build(MOCK, tmp_path / "engine.tar")
    assert other.exists()


def test_an_earlier_build_and_an_empty_file_are_replaced(tmp_path):
    (tmp_path / "engine.tar").touch()
    (tmp_path / "engine.tar.log").write_text("== build: trtllm-build\n")
    build(MOCK, tmp_path / "engine.tar")
    assert not (tmp_path / "engine.tar.log").exists()
    first = (tmp_path / "engine.tar").read_bytes()
    build(MOCK, tmp_path / "engine.tar")
    assert (tmp_path / "engine.tar").read_bytes() == first


def test_an_archive_that_does_not_fit_is_not_begun(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9 - 9, 9))
    with pytest.raises(NotEnoughSpace) as caught:
        build(MOCK, tmp_path / "engine.tar", work_dir=tmp_path)
    assert re.search(
        rf"the engine archive needs 2\d\d\.\d kB, and {tmp_path} has 9 bytes free\. ", str(caught.value)
    )
    assert list(tmp_path.iterdir()) == []


def test_missing_engine_environment_is_noticed_first(tmp_path, hub, monkeypatch):
    monkeypatch.setenv("COG_TRITON_HOME", str(tmp_path))
    there = ", ".join(sorted({*WITHOUT_ENVIRONMENT, "vllm"}))  # vLLM itself is not needed to pack a model
    with pytest.raises(EngineNotInImage, match=rf'"ctranslate2"; it has: {there}\.'):
        build("data:,{engine: ctranslate2, model: someone/tiny}", tmp_path / "engine.tar")
    assert hub.requests == []


@dataclass(frozen=True)
class Failing:
    error: BaseException
    name: ClassVar[str] = "failing"

    def run(self, build, progress):
        (build.work_dir / "half").write_text("x")
        raise self.error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(5, "Input/output error", "/secret/place"), "Input/output error"),
        (KeyError("x"), UNEXPECTED),
    ],
)
def test_a_surprise_gets_a_code_and_leaves_nothing(tmp_path, monkeypatch, error, reason):
    monkeypatch.setattr(pipeline, "make_plan", lambda *_: Plan("mock", (Failing(error),)))
    with pytest.raises(ConversionFailed, match=rf'The step "failing" failed: {reason}\.'):
        build(MOCK, tmp_path / "engine.tar", work_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "left"),
    [
        (OSError(28, "No space left on device", "/secret/place"), 2_500_000),
        (NotEnoughSpace(reason="a child said so"), 2_500_000),
        (HostMemoryExhausted(step="failing"), 4096),
        (ConversionFailed(step="failing", reason="killed by signal 7 (SIGBUS)"), 0),
    ],
)
def test_a_full_disk_is_named_with_what_was_free(tmp_path, monkeypatch, error, left):
    free = iter([2_500_000, left])
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 0, next(free)))
    monkeypatch.setattr(pipeline, "make_plan", lambda *_: Plan("mock", (Failing(error),)))
    with pytest.raises(NotEnoughSpace) as caught:
        build(MOCK, tmp_path / "engine.tar", work_dir=tmp_path)
    assert f'the step "failing" filled {tmp_path}, which had 2.5 MB free. ' in str(caught.value)
    assert "TMPDIR" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_without_a_place_for_temporary_files_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(WorkFolderUnusable, match=r"made in TMPDIR, /tmp or /var/tmp \(No such file or dir"):
        build(MOCK, tmp_path / "engine.tar")
    assert list(tmp_path.iterdir()) == []


def test_where_no_place_for_temporary_files_is_found_those_that_were_tried_are_not_listed(
    tmp_path, monkeypatch
):
    def find():
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(pipeline, "gettempdir", find)
    with pytest.raises(WorkFolderUnusable, match=r"made in TMPDIR, /tmp or /var/tmp\. Set"):
        build(MOCK, tmp_path / "engine.tar")


def test_killed_while_there_is_room_is_not_the_disk(tmp_path, monkeypatch):
    error = HostMemoryExhausted(step="failing")
    monkeypatch.setattr(pipeline, "make_plan", lambda *_: Plan("mock", (Failing(error),)))
    with pytest.raises(HostMemoryExhausted):
        build(MOCK, tmp_path / "engine.tar", work_dir=tmp_path)


def test_a_cancelled_build_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline, "make_plan", lambda *_: Plan("mock", (Failing(KeyboardInterrupt()),)))
    with pytest.raises(KeyboardInterrupt):
        build(MOCK, tmp_path / "engine.tar", work_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_build_left_is_removed_by_the_next(tmp_path):
    killed = """
import os, signal, sys
from pathlib import Path
from builder import package, pipeline

def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)

package.write_archive = kill
pipeline.build(sys.argv[1], Path("engine.tar"), work_dir=Path.cwd())
"""
    ended = subprocess.run(
        [sys.executable, "-c", killed, MOCK],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(PROJECT_ROOT)},
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert left.name.startswith("cog-triton-build-")
    build(MOCK, tmp_path / "engine.tar", work_dir=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["engine.tar"]


def test_nobody_is_told_to_change_the_permissions_of_a_read_only_file_system(tmp_path, monkeypatch):
    monkeypatch.setattr("builder.output.is_read_only", lambda folder: folder == tmp_path)
    with pytest.raises(OutputRefused, match=r"is on a read-only file system\. Choose a file in another dir"):
        build(MOCK, tmp_path / "engine.tar")


def test_the_current_folder_is_named_where_this_user_may_not_write_to_it(tmp_path, monkeypatch):
    """With the full stop it was said to be the folder above: `may not write to ..`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(
        OutputRefused, match=f"this user may not write to {tmp_path}\\. Change its permissions"
    ):
        build(MOCK, Path("engine.tar"))


def test_a_file_system_without_inodes_is_named(tmp_path, monkeypatch):
    """It was said to be full, with megabytes free."""
    error = OSError(28, "No space left on device")
    monkeypatch.setattr(pipeline, "make_plan", lambda *_: Plan("mock", (Failing(error),)))
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_files=9, f_favail=0, f_flag=0))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 0, 10**8))
    with pytest.raises(NotEnoughSpace, match=f'the step "failing" used up the inodes of {tmp_path}'):
        build(MOCK, tmp_path / "engine.tar", work_dir=tmp_path)
