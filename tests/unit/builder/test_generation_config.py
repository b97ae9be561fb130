import json

import pytest

from builder.generation_config import generation_config
from shared.errors import CheckpointInvalid


@pytest.fixture
def model(tmp_path):
    def write(**files):
        for name, content in files.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(content))
        return tmp_path

    return write


def ids(model):
    return json.loads(generation_config(model))["eos_token_id"]


def test_one_that_is_complete_is_kept_as_it_is(model):
    directory = model(config={"eos_token_id": 2}, generation_config={"eos_token_id": [3, 2]})
    assert generation_config(directory) == (directory / "generation_config.json").read_bytes()


def test_ids_of_config_are_added_behind_its_own(model):
    directory = model(config={"eos_token_id": [2, 5]}, generation_config={"eos_token_id": 5, "top_p": 0.9})
    assert json.loads(generation_config(directory)) == {"eos_token_id": [5, 2], "top_p": 0.9}


@pytest.mark.parametrize("token", ["<|eot|>", {"content": "<|eot|>", "special": True}])
def test_the_end_token_of_the_tokenizer_is_added(model, token):
    added = [{"id": 9, "content": "<|eot|>"}, {"id": 10, "content": "<pad>"}]
    assert ids(model(tokenizer_config={"eos_token": token}, tokenizer={"added_tokens": added})) == [9]


def test_a_model_that_names_none_gets_no_file(model):
    assert generation_config(model(config={"eos_token_id": None})) is None


def test_a_model_that_names_none_keeps_its_file(model):
    directory = model(generation_config={"top_p": 0.9})
    assert json.loads(generation_config(directory)) == {"top_p": 0.9}


@pytest.mark.parametrize("text", ["{", "[]", '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}"])
def test_what_is_no_json_object_is_refused(tmp_path, text):
    (tmp_path / "generation_config.json").write_text(text)
    with pytest.raises(CheckpointInvalid, match=r"generation_config\.json is not"):
        generation_config(tmp_path)


@pytest.mark.parametrize("added", [7, [7], [{"content": "x"}], [{"id": 1}]])
def test_added_tokens_of_another_form_say_nothing(model, added):
    assert (
        generation_config(model(tokenizer_config={"eos_token": "x"}, tokenizer={"added_tokens": added}))
        is None
    )
