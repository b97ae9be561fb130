"""What publishers keep on their own indexes: which is asked for a hash, and who was believed."""

from __future__ import annotations

import pytest

from nix.lock import publishers
from nix.lock.__main__ import main
from nix.lock.files import LOCKS, LockProblem, read, write
from tests.support.loopback import folder_server

WHEEL = "tensorrt_llm-1.2.1-cp312-cp312-linux_x86_64.whl"
HASH = "a" * 64


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    """A company's mirror of NVIDIA's index."""
    page = tmp_path / "mirror/tensorrt-llm/index.html"
    page.parent.mkdir(parents=True)
    page.write_text(f'<a href="{WHEEL}#sha256={HASH}">{WHEEL}</a>')
    with folder_server(tmp_path / "mirror") as server:
        monkeypatch.setenv("NVIDIA_INDEX_URL", f"{server.url}/")
        yield server.url


def unknown(name: str):
    (row,) = [row for row in read(LOCKS / "publishers.json")["artifacts"] if row["name"] == name]
    return {**row, "sha256": None}


def test_a_mirror_of_nvidias_index_is_asked_and_named(mirror, tmp_path, capsys):
    row = unknown("tensorrt-llm")
    locks = tmp_path / "nix/locks"
    (locks / "wheels").mkdir(parents=True)
    write(locks / "publishers.json", {"artifacts": [row]})
    wheel = {column: row[column] for column in ("name", "version", "file", "sha256", "size", "index")}
    write(locks / "wheels/engine-tensorrt-llm.json", {"wheels": [wheel]})
    assert main(["fill"], tmp_path) == 0
    assert capsys.readouterr().out == f"{WHEEL}: sha256 {HASH}, as {mirror} states it\n"
    (filled,) = read(locks / "publishers.json")["artifacts"]
    assert filled == {**row, "sha256": HASH}  # the mirror is not in the lock
    assert read(locks / "wheels/engine-tensorrt-llm.json")["wheels"][0]["sha256"] == HASH


def test_the_mirror_is_asked_for_nothing_but_nvidias(mirror):
    row = {**unknown("torch"), "index": "http://127.0.0.1:9"}
    with pytest.raises(LockProblem, match=r"^http://127\.0\.0\.1:9/torch/ cannot be reached"):
        publishers.check({"artifacts": [row]})


def test_a_password_of_the_mirror_is_not_shown(monkeypatch):
    monkeypatch.setenv("NVIDIA_INDEX_URL", "http://user:s3cret@127.0.0.1:9/simple")
    row = unknown("tensorrt-llm")
    with pytest.raises(
        LockProblem, match=r"127\.0\.0\.1:9/simple/tensorrt-llm/ cannot be reached"
    ) as problem:
        publishers.check({"artifacts": [row]})
    filled = {"artifacts": [{**row, "sha256": HASH}]}
    (told,) = publishers.trusted({"artifacts": [row]}, filled)
    assert "s3cret" not in f"{problem.value}{told}"


def test_what_is_known_is_trusted_as_before(mirror):
    document = {"artifacts": [{**unknown("tensorrt-llm"), "sha256": HASH}]}
    assert publishers.trusted(document, publishers.check(document)) == []


def test_a_hash_that_was_entered_by_hand_is_kept_where_the_index_states_none(mirror, tmp_path):
    (tmp_path / "mirror/tensorrt-llm/index.html").write_text(f'<a href="{WHEEL}">{WHEEL}</a>')
    row = unknown("tensorrt-llm")
    with pytest.raises(LockProblem, match=f"has no sha256 for {WHEEL}; enter it by hand from a download"):
        publishers.check({"artifacts": [row]})
    document = {"artifacts": [{**row, "sha256": HASH}]}
    assert publishers.check(document) == document


def test_one_hash_is_unknown():
    """The wheel of TensorRT-LLM, which NVIDIA's index names."""
    rows = read(LOCKS / "publishers.json")["artifacts"]
    assert {row["name"] for row in rows if row["sha256"] is None} <= {"tensorrt-llm"}


def test_what_a_commit_names_is_kept_as_it_is(mirror):
    document = {"artifacts": [unknown("tensorrt-llm")], "sources": read(LOCKS / "publishers.json")["sources"]}
    assert publishers.check(document)["sources"] == document["sources"]
    assert publishers.fill(document)[0]["sources"] == document["sources"]
