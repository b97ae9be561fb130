import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tokenizers

from runner.text.tokenizer import Tokenizer
from shared.errors import TritonTokenizerError

A, B, BOS, EOS, END = 0, 1, 3, 4, 5


@pytest.mark.parametrize(
    ("adds_bos", "add_bos_token", "text", "ids"),
    [
        (True, None, "a", [BOS, A]),
        (True, None, "<s> a", [BOS, A]),
        (True, None, "<s> <s> a", [BOS, BOS, A]),
        (True, True, "<s> a", [BOS, A]),
        (True, False, "a", [A]),
        (True, False, "<s> a", [BOS, A]),
        (False, None, "a", [A]),
        (False, None, "<s> a", [BOS, A]),
        (False, None, "<s> <s> a", [BOS, BOS, A]),
        (False, True, "a", [BOS, A]),
        (False, True, "<s> a", [BOS, A]),
        (False, True, "", [BOS]),
    ],
)
def test_bos_is_there_once_when_the_model_wants_it(write_model, adds_bos, add_bos_token, text, ids):
    config = {"bos_token": {"content": "<s>"}, "add_bos_token": add_bos_token}
    assert Tokenizer.load(write_model(adds_bos=adds_bos, tokenizer_config=config)).encode(text) == ids


@pytest.mark.parametrize("file", ["generation_config", "config"])
def test_bos_may_be_named_by_its_id(write_model, file):
    tokenizer = Tokenizer.load(write_model(**{file: {"bos_token_id": BOS}}))
    assert tokenizer.encode("<s> a") == [BOS, A]


def test_tokenizer_json_alone_is_enough(write_model):
    tokenizer = Tokenizer.load(write_model())
    assert tokenizer.encode("a b") == [BOS, A, B]
    assert tokenizer.decode([BOS, A, B, EOS]) == "a b"
    assert tokenizer.end_ids == frozenset()
    assert tokenizer.vocab_size == 6


@pytest.mark.parametrize(
    ("files", "end_ids"),
    [
        ({"generation_config": {"eos_token_id": EOS}}, {EOS}),
        ({"generation_config": {"eos_token_id": [EOS, END]}, "config": {"eos_token_id": A}}, {EOS, END}),
        ({"generation_config": {}, "tokenizer_config": {"eos_token": "</s>"}}, {EOS}),
        ({"tokenizer_config": {"eos_token": {"content": "<end>"}}, "config": {"eos_token_id": A}}, {END}),
        ({"tokenizer_config": {"eos_token": None}, "config": {"eos_token_id": EOS}}, {EOS}),
        ({"tokenizer_config": {"eos_token": "not in the vocabulary"}}, set()),
    ],
)
def test_end_ids_come_from_the_first_file_that_says(write_model, files, end_ids):
    assert Tokenizer.load(write_model(**files)).end_ids == end_ids


def test_truncation_and_padding_in_the_file_do_not_touch_a_prompt(write_model):
    directory = write_model()
    path = str(directory / "tokenizer.json")
    library_tokenizer = tokenizers.Tokenizer.from_file(path)
    library_tokenizer.enable_truncation(3)
    library_tokenizer.enable_padding(length=8)
    library_tokenizer.save(path)
    assert Tokenizer.load(directory).encode("a a a a a") == [BOS, A, A, A, A, A]


def test_a_missing_tokenizer_is_coded(tmp_path):
    with pytest.raises(TritonTokenizerError, match=r"E2102 .*tokenizer\.json is missing"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("content", ["", "{", "{}", "version https://git-lfs.github.com/spec/v1"])
def test_a_broken_tokenizer_is_coded_and_names_no_path(tmp_path, content):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(TritonTokenizerError, match=r"E2102 .*tokenizer\.json cannot be read") as caught:
        Tokenizer.load(tmp_path)
    assert str(tmp_path) not in str(caught.value)


def test_a_panic_of_the_library_is_coded(write_model):
    path = write_model() / "tokenizer.json"
    content = json.loads(path.read_text())
    content["post_processor"]["special_tokens"] = {}
    path.write_text(json.dumps(content))
    with pytest.raises(TritonTokenizerError, match=r"E2102 .*its special tokens do not fit"):
        Tokenizer.load(path.parent)


def test_a_prompt_without_tokens_is_coded(tmp_path):
    library_tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="[UNK]"))
    library_tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(TritonTokenizerError, match=r"E2102 .*it cannot encode the prompt"):
        Tokenizer.load(tmp_path).encode("b")


def test_an_engine_can_be_tried_whatever_words_its_tokenizer_has(tmp_path):
    """The start waited for ever for a tokenizer without the word that was asked for."""
    for vocabulary, some in (({"a": 3}, [3]), ({"b": 3}, [0]), ({}, [0])):
        model = tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]")
        tokenizers.Tokenizer(model).save(str(tmp_path / "tokenizer.json"))
        assert Tokenizer.load(tmp_path).some() == some


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("generation_config", {"eos_token_id": "</s>"}),
        ("generation_config", {"eos_token_id": [True]}),
        ("config", {"bos_token_id": 1.5}),
        ("tokenizer_config", {"eos_token": ["</s>"]}),
        ("tokenizer_config", {"add_bos_token": "yes"}),
        ("config", ["not", "an", "object"]),
    ],
)
def test_a_wrong_value_is_coded_with_its_file(write_model, file, content):
    with pytest.raises(TritonTokenizerError, match=f"E2102 .*{file}.json is"):
        Tokenizer.load(write_model(**{file: content}))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"{", "is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        (b"\xff\xfe", "is not JSON: Expecting value: line 1 column 1 (char 0)"),
        (b'{"\xff"', "is not UTF-8"),
        (b"[" * 100_000, "is nested too deeply"),
        (b"9" * 5000, "has a number with too many digits"),
    ],
)
def test_why_a_file_is_no_json_is_told_in_words(write_model, content, told):
    directory = write_model()
    (directory / "generation_config.json").write_bytes(content)
    with pytest.raises(TritonTokenizerError) as refused:
        Tokenizer.load(directory)
    assert refused.value.details["reason"] == f"generation_config.json {told}"


def test_a_file_of_another_user_is_coded(write_model, monkeypatch):
    def refused(path):
        raise PermissionError(13, "Permission denied", str(path))

    directory = write_model(generation_config={})
    monkeypatch.setattr(Path, "read_bytes", refused)  # root may read everything
    with pytest.raises(
        TritonTokenizerError,
        match=r"generation_config\.json cannot be read: this user has no permission to read it\.",
    ):
        Tokenizer.load(directory)


def test_threads_share_a_tokenizer(gpt):
    texts = [f"text number {n} é 日本 😀" for n in range(200)]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda text: gpt.decode(gpt.encode(text)), texts)) == texts


def test_the_bytes_of_each_token_by_itself(gpt, llama, ids_of):
    def told(tokenizer, *tokens):
        return [tokenizer.token_bytes(token) for token in ids_of(tokenizer, *tokens)]

    assert told(gpt, "Ġhello", "ðŁĺ", "</s>") == [b" hello", b"\xf0\x9f\x98", b"</s>"]
    assert told(llama, "▁hello", "<0xE2>", "<s>") == [b" hello", b"\xe2", b"<s>"]
    assert gpt.token_bytes(99_999) == b""
