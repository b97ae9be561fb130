import sys

import pytest

from tools.docs import __main__ as command
from tools.docs import generated


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Run `python -m tools.docs` with arguments, for a checkout in tmp_path with one document."""
    monkeypatch.setattr(generated, "PROJECT_ROOT", tmp_path)
    monkeypatch.setattr(command, "PROJECT_ROOT", tmp_path)
    monkeypatch.setattr(command, "documents", lambda: {"page.md": "new\n"})

    def run(*arguments: str) -> None:
        monkeypatch.setattr(sys, "argv", ["-m", *arguments])
        command.main()

    return run


def test_the_committed_documents_are_fresh():
    assert generated.stale(generated.documents()) == [], "run `make docs`"


@pytest.mark.parametrize("old", [None, "old\n"])
def test_documents_are_written(run, tmp_path, old):
    if old:
        (tmp_path / "page.md").write_text(old)
    run()
    assert (tmp_path / "page.md").read_text() == "new\n"


def test_a_stale_document_fails_the_check_and_is_left_alone(run, tmp_path):
    (tmp_path / "page.md").write_text("old\n")
    with pytest.raises(SystemExit, match=r"stale: page.md; run `make docs`"):
        run("--check")
    assert (tmp_path / "page.md").read_text() == "old\n"


def test_a_fresh_document_passes_the_check(run):
    run()
    run("--check")


def test_other_arguments_are_refused(run):
    with pytest.raises(SystemExit, match="usage"):
        run("--chekc")
