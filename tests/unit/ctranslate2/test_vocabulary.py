from __future__ import annotations

import pytest
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE

from builder.engines.ctranslate2.vocabulary import read_vocabulary
from shared.errors import CheckpointInvalid


def write(path, vocabulary, *added):
    tokenizer = Tokenizer(BPE(vocabulary, []))
    tokenizer.add_tokens([AddedToken(token) for token in added])
    tokenizer.save(str(path))


def test_tokens_stand_in_the_order_of_their_ids(tmp_path):
    write(tmp_path / "tokenizer.json", {"b": 1, "a": 0}, "<end>")
    assert read_vocabulary(tmp_path / "tokenizer.json", 3) == ["a", "b", "<end>"]


def test_ids_without_a_token_get_a_name_that_nothing_else_has(tmp_path):
    write(tmp_path / "tokenizer.json", {"a": 0, "<unused_1>": 2})
    assert read_vocabulary(tmp_path / "tokenizer.json", 4) == ["a", "<unused_1>_", "<unused_1>", "<unused_3>"]


def test_tokens_beyond_the_embeddings_are_left_out(tmp_path):
    write(tmp_path / "tokenizer.json", {"a": 0, "b": 1, "c": 2})
    assert read_vocabulary(tmp_path / "tokenizer.json", 2) == ["a", "b"]


def test_two_tokens_of_one_id_give_one_name(tmp_path):
    (tmp_path / "tokenizer.json").write_text(
        '{"model": {"type": "BPE", "vocab": {"b": 0, "a": 0}, "merges": []}, "added_tokens": []}'
    )
    assert read_vocabulary(tmp_path / "tokenizer.json", 1) == ["a"]


@pytest.mark.parametrize("content", ["{}", "not JSON", '{"model": {"type": "BPE"}}'])
def test_a_broken_tokenizer_is_refused(tmp_path, content):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(CheckpointInvalid, match=r"tokenizer\.json cannot be read"):
        read_vocabulary(tmp_path / "tokenizer.json", 1)


def test_a_missing_tokenizer_is_refused(tmp_path):
    with pytest.raises(CheckpointInvalid, match=r"it has no tokenizer\.json"):
        read_vocabulary(tmp_path / "tokenizer.json", 1)
