"""Texts that are no config at all: one finding, at its place, without a traceback and without delay."""

import pytest

from builder.check.report import check
from builder.check.source import check_source

LINE = "model_id: a/b\n"


def bomb(levels: int) -> str:
    return "a0: &a0 [x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, levels)
    )


@pytest.mark.parametrize(
    ("text", "code", "line", "column"),
    [
        ("", "E3002", 1, 1),
        ("- a\n", "E3002", 1, 1),
        ("just words\n", "E3002", 1, 1),
        (LINE + "build:\n\toutput_dir: x\n", "E3002", 3, 1),
        (LINE + " build: x\n", "E3002", 2, 7),
        (LINE + "build: {a: 1\n", "E3002", 3, 1),
        (LINE + "build: 'x\n", "E3002", 3, 1),
        (LINE + "---\n" + LINE, "E3002", 2, 1),
        (LINE + "build: *step\n", "E3002", 2, 8),
        (LINE + "build: !!python/object/apply:os.getcwd []\n", "E3002", 2, 8),
        (LINE + "build: !!binary aGk=\n", "E3002", 2, 8),
        (LINE + "x: .inf\n", "E3002", 2, 4),
        (LINE + "x: " + "9" * 100_000, "E3002", 2, 4),
        (LINE + "x: 0x" + "9" * 100_000, "E3002", 2, 4),
        (LINE + "x: 1" + ":59" * 10_000, "E3002", 2, 4),
        (LINE + "12: x\n", "E3002", 2, 1),
        (LINE + "yes: x\n", "E3002", 2, 1),
        (LINE + "? [a]\n: x\n", "E3002", 2, 3),
        (LINE + "build: \x00\n", "E3002", 2, 8),
        (LINE + "build: &b [*b]\n", "E3002", 2, 8),
        (LINE + "build: &b {<<: *b}\n", "E3002", 2, 8),
        (LINE + "build: &b {args: *b}\n", "E3002", 2, 8),
        (bomb(20), "E3002", 1, 5),
        (LINE + "x: " + "[" * 100_000, "E3002", 1, 1),
        (LINE + "x:\n" + "- y\n" * 100_000, "E3002", 19998, 3),
        (LINE + "build: {}\nbuild: {}\n", "E3003", 3, 1),
        (LINE + "build:\n  args: {a: 1, b: 2, a: 3}\n", "E3003", 3, 22),
        (LINE + "build:\n  args:\n    a: 1\n    'a': 1\n", "E3003", 5, 5),
        # As in the official config of Mistral 7B.
        ("server:\n  args:\n    tokenizer_type: llama\n    b: 64\n    tokenizer_type: auto\n", "E3003", 5, 5),
    ],
    ids=lambda value: None if isinstance(value, int) else str(value)[:30].encode("unicode_escape").decode(),
)
def test_text(text, code, line, column):
    (found,) = check(text, "config.yaml").diagnostics
    assert (found.code, found.line, found.column) == (code, line, column)
    assert "Traceback" not in str(found)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"a: " + b"x" * 10_000_000, "E3001"),
        (b"\x7fELF\x02\x01\x01\x00\xff\xfe\x80", "E3002"),
        ("model_id: a/b".encode("utf-16"), "E3002"),
        (b"model_id: \xe9\n", "E3002"),
    ],
)
def test_file(tmp_path, content, code):
    path = tmp_path / "config.yaml"
    path.write_bytes(content)
    (found,) = check_source(str(path)).diagnostics
    assert (found.code, found.line, found.column) == (code, 1, 1)


def test_no_file(tmp_path):
    (found,) = check_source(str(tmp_path / "none.yaml")).diagnostics
    assert found.code == "E3000"


def test_a_folder(tmp_path):
    (found,) = check_source(str(tmp_path)).diagnostics
    assert found.code == "E3000"
