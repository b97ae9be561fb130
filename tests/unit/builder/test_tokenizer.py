"""How a tokenizer.json that was made is judged, and where it is put."""

import sys
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from builder.engines.mock import counting_tokenizer
from builder.step import Model
from builder.tokenizer import __main__ as converter
from builder.tokenizer.made import Made
from builder.tokenizer.step import MakeTokenizer, compare
from shared.errors import NotEnoughSpace, TokenizerNotConverted, from_text

ONE, TWO = (counting_tokenizer().token_to_id(word) for word in ("1", "2"))


def sample(text, ids, **more):
    return {"text": text, "ids": ids, "all_ids": ids, "decoded": text, **more}


def test_one_that_agrees():
    compare(counting_tokenizer(), [sample("1 2", [ONE, TWO]), sample("", [])])


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (sample("1 2", [ONE]), "splits '1 2'"),
        (sample("1 2", [ONE, TWO], all_ids=[0, ONE, TWO]), "splits '1 2'"),
        (sample("1 2", [ONE, TWO], decoded="12"), "decodes '1 2'"),
        (sample("1 " * 99, [ONE]), r"splits '(1 ){20}\.\.\.'"),
    ],
)
def test_one_that_does_not(wrong, what):
    with pytest.raises(TokenizerNotConverted, match=what):
        compare(counting_tokenizer(), [sample("1", [ONE]), wrong])


def test_a_space_at_the_beginning_is_told_once():
    wrong = sample(" 2", [ONE, TWO], decoded="1 2")
    with capture_logs() as logs:
        compare(counting_tokenizer(), [wrong, wrong])
    assert [line["log_level"] for line in logs] == ["warning"]


def test_a_model_with_a_tokenizer_json_is_taken_as_it_is(state, model_dir):
    state.model = Model("tiny", None, model_dir)
    MakeTokenizer().run(state, lambda *_: None)
    assert state.model.path == model_dir


@pytest.mark.parametrize("file", ["tokenizer.json", "samples.json"])
def test_a_full_disk_is_told_by_the_converter(file, tmp_path, monkeypatch, capsys):
    original = SimpleNamespace(end=None, ordinary=[], encode=lambda _, **__: [], decode=lambda _: "")
    monkeypatch.setattr(converter, "from_slow", lambda _: Made(original, {"tokenizer.json": "{}"}))
    monkeypatch.setattr(sys, "argv", ["converter", "--model", str(tmp_path), "--output", str(tmp_path)])
    (tmp_path / file).symlink_to("/dev/full")
    assert converter.main() == 1
    told = from_text(capsys.readouterr().err)
    assert isinstance(told, NotEnoughSpace)
    assert file in str(told)
