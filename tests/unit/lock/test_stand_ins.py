import gzip
import io
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

from nix.lock import stand_ins
from nix.lock.files import LOCKS, LockProblem, read, text
from tools.docs.generated import stale


def test_the_list_is_fresh():
    listed = {"nix/locks/stand-ins.json": text(stand_ins.listing())}

    assert stale(listed) == []


def test_exactly_the_publishers_files_are_stood_in_for():
    published = {row["file"] for row in read(LOCKS / "publishers.json")["artifacts"]}

    assert set(stand_ins.artifacts()) == published


@pytest.fixture(scope="module")
def alternative(tmp_path_factory):
    directory = tmp_path_factory.mktemp("alternative")
    stand_ins.write_set(directory)
    return directory


def test_an_alternative_set_differs_from_the_locks_in_the_stand_ins_alone(alternative):
    publishers = read(LOCKS / "publishers.json")
    published = {row.get("file", row["name"]) for rows in publishers.values() for row in rows}
    for original in LOCKS.rglob("*.json"):
        theirs = (alternative / "locks" / original.relative_to(LOCKS)).read_text().splitlines()
        pairs = zip(original.read_text().splitlines(), theirs, strict=True)
        changed = [ours for ours, other in pairs if ours != other]
        assert all(any(file in line for file in published) for line in changed)


def test_no_hash_is_unknown_in_an_alternative_set(alternative):
    documents = [read(path) for path in (alternative / "locks").rglob("*.json")]
    keys = ("wheels", "artifacts", "sources")
    rows = [row for document in documents for key in keys for row in document.get(key, ())]

    assert rows
    assert all(row.get("sha256") or row["commit"] for row in rows)


def test_a_set_can_be_written_over_an_older_one(alternative):
    before = (alternative / "locks/stand-ins.json").read_bytes()
    stand_ins.write_set(alternative)

    assert (alternative / "locks/stand-ins.json").read_bytes() == before


@pytest.mark.parametrize("folder", [".", "locks", "locks/wheels", "locks/new"])
def test_the_locks_themselves_are_not_replaced(tmp_path, monkeypatch, folder):
    shutil.copytree(LOCKS, tmp_path / "locks")
    monkeypatch.setattr(stand_ins, "LOCKS", tmp_path / "locks")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(
        LockProblem, match="has the locks themselves, or is among them: choose another folder"
    ):
        stand_ins.write_set(tmp_path / folder)

    assert sorted(tmp_path.rglob("*")) == before


def test_locks_that_cannot_be_read_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(stand_ins, "LOCKS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["stand_ins"])
    with pytest.raises(SystemExit, match=r"publishers\.json cannot be read; restore it from git"):
        stand_ins.main()


def test_pip_finds_the_wheels_in_the_index_of_the_set(alternative, tmp_path):
    row = next(r for r in read(alternative / "locks/publishers.json")["artifacts"] if r["name"] == "torch")
    (tmp_path / "r.txt").write_text(f"torch=={row['version']} --hash=sha256:{row['sha256']}")
    options = [
        "--isolated",
        "--disable-pip-version-check",
        "--no-cache-dir",
        "--no-deps",
        "--only-binary=:all:",
    ]
    image = [
        "--python-version=3.12",
        "--implementation=cp",
        "--abi=cp312",
        "--platform=manylinux_2_28_x86_64",
    ]
    command = [sys.executable, "-m", "pip", "download", *options, *image, f"--index-url={row['index']}"]
    subprocess.run([*command, "-r", "r.txt", "-d", "."], cwd=tmp_path, check=True, capture_output=True)

    assert (tmp_path / row["file"]).exists()


def test_the_compiler_says_that_it_is_a_stand_in_and_fails(alternative, tmp_path):
    wheel = next((alternative / "files").glob("tensorrt_llm-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
        points = archive.read("tensorrt_llm-1.2.1.dist-info/entry_points.txt").decode()
    done = subprocess.run(
        [sys.executable, "-m", "tensorrt_llm.commands.build"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "trtllm-build = tensorrt_llm.commands.build:main" in points
    assert done.returncode == 1
    assert done.stderr.startswith("trtllm-build is a stand-in")


def test_the_examples_hold_both_scripts(alternative):
    (row,) = read(alternative / "locks/publishers.json")["sources"]
    command = ["git", "ls-tree", "-r", "--name-only", row["commit"]]
    repository = alternative / "repositories/tensorrt-llm-examples"
    listed = subprocess.run(command, cwd=repository, check=True, capture_output=True, text=True).stdout
    scripts = [name.rpartition("/")[2] for name in listed.split()]

    assert scripts == ["convert_checkpoint.py", "quantize.py"]


def test_python_has_the_layout_of_the_real_one(alternative):
    packed = next((alternative / "files").glob("cpython-*")).read_bytes()
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(packed))) as archive:
        python = archive.getmember("python/bin/python3.12")

    assert python.mode & 0o111
