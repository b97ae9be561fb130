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
