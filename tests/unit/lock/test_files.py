import json

import pytest

from nix.lock.files import LockProblem, read, text, write

DOCUMENT = {"python": "3.13", "wheels": [{"name": "a"}, {"name": "ü"}], "none": [], "words": ["x", "y"]}


def test_members_of_a_list_stand_on_lines_of_their_own():
    assert text(DOCUMENT).splitlines()[2:5] == ['  "wheels": [', '    {"name": "a"},', '    {"name": "ü"}']


def test_the_text_is_the_document():
    assert json.loads(text(DOCUMENT)) == DOCUMENT


def test_a_file_that_would_not_change_is_not_written(tmp_path):
    path = tmp_path / "locks/a.json"

    assert write(path, DOCUMENT)
    before = path.stat().st_ino
    assert not write(path, DOCUMENT)
    assert path.stat().st_ino == before


def test_a_write_that_fails_leaves_the_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.json"
    write(path, DOCUMENT)
    with pytest.raises(UnicodeEncodeError):
        write(path, {"name": "\ud800"})

    assert read(path) == DOCUMENT
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", ["{", "[]"])
def test_what_is_no_document_is_refused(tmp_path, content):
    (tmp_path / "a.json").write_text(content)

    with pytest.raises(LockProblem, match=r"a\.json .*; restore it from git"):
        read(tmp_path / "a.json")


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(LockProblem, match=r"a\.json cannot be read"):
        read(tmp_path / "a.json")


SHAPE = {"suite": str, "rows": {"name": str, "size": int | None}}


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ({}, "suite"),
        ({"suite": None, "rows": []}, "suite"),
        ({"suite": "x"}, "rows"),
        ({"suite": "x", "rows": {}}, "rows"),
        ({"suite": "x", "rows": [{"name": "a", "size": 1}, 1]}, r"rows\[1\]"),
        ({"suite": "x", "rows": [{"name": "a"}]}, r"rows\[0\]\.size"),
    ],
)
def test_a_document_of_another_shape_is_refused(tmp_path, document, place):
    write(tmp_path / "a.json", document)

    with pytest.raises(LockProblem, match=rf"a\.json: `{place}` is missing or of another type"):
        read(tmp_path / "a.json", SHAPE)


def test_a_document_may_have_more_than_its_shape(tmp_path):
    document = {"suite": "x", "rows": [{"name": "a", "size": None, "note": "b"}], "none": []}
    write(tmp_path / "a.json", document)

    assert read(tmp_path / "a.json", SHAPE) == document


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(LockProblem, match=r"file/a\.json cannot be written: File exists\."):
        write(tmp_path / "file/a.json", DOCUMENT)
