"""A corpus of broken configs. A comment `#! E3012:5` in a line says what is found there, at which column."""

import re
from pathlib import Path

import pytest

from builder.check.report import check

CORPUS = sorted(Path(__file__).parent.joinpath("broken").glob("*.yaml"))
GPUS = 8


def expected(text: str) -> list[tuple[int, int, str]]:
    return [
        (number, int(column), code)
        for number, line in enumerate(text.splitlines(), 1)
        for code, column in re.findall(r"(E\d{4}):(\d+)", line.partition("#!")[2])
    ]


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_each_finding_has_its_code_and_place(path):
    text = path.read_text()
    found = [(one.line, one.column, one.code) for one in check(text, path.name, GPUS).diagnostics]
    assert expected(text)
    assert found == expected(text)


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_each_finding_says_what_is_wrong_and_what_to_do(path):
    for one in check(path.read_text(), path.name, GPUS).diagnostics:
        assert one.what.endswith(".")
        assert len(one.fix) > len("Fix it.")
        assert str(one).startswith(f"{path.name}:{one.line}:{one.column}: {one.severity}: {one.code} ")
        assert "{" not in one.what + one.fix
        assert not re.search(r"(?<!')\b(None|True|False)\b|\(\)", one.what)  # values as YAML has them
        assert "hf_abc" not in str(one)
