"""Builds of models without a tokenizer.json, with the real converter."""

import json
import shutil
import tarfile

import pytest

from builder.pipeline import build
from builder.tokenizer.corpus import TEXTS as CORPUS
from runner.text.chat import ChatTemplate
from runner.text.tokenizer import Tokenizer
from shared.artifact import extract_archive
from shared.errors import CheckpointInvalid, TokenizerNotConverted
from tests.support.files import FileServer
from tests.support.tokenizers import (
    DEMO,
    LLAMA,
    demo_in_gpt2_form,
    sentencepiece_ids,
    sentencepiece_model,
    tekken,
    tekken_ids,
    tekken_model,
)

TEXTS = ["Once upon a time, there was a fox.", "Two  spaces,\nanother line: naïve, 東京 🦊."]


def config(engine, model, **keys):
    return "data:," + json.dumps({"engine": engine, "model": str(model), **keys})


def unpacked(archive, into):
    with archive.open("rb") as stream:
        extract_archive(stream, into, check=lambda _: None, max_bytes=1 << 30)
    return into


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return sentencepiece_model(tmp_path_factory.mktemp("llama") / "model")


def test_vocabulary_and_merges_serve_as_the_tokenizer_json_they_stand_for(tmp_path):
    model = demo_in_gpt2_form(tmp_path / "model")
    before = sorted(path.name for path in model.iterdir())
    engines = []
    for name, source in (("made", model), ("published", DEMO)):
        build(config("ctranslate2", source), tmp_path / f"{name}.tar", work_dir=tmp_path)
        engines.append(unpacked(tmp_path / f"{name}.tar", tmp_path / name))
    made, published = engines
    for file in ("model.bin", "vocabulary.json"):
        assert (made / "engine" / file).read_bytes() == (published / "engine" / file).read_bytes()
    ours, theirs = (Tokenizer.load(engine / "tokenizer") for engine in engines)
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text)
        assert ours.decode(ours.encode(text)) == text
    assert ours.end_ids == theirs.end_ids
    assert sorted(path.name for path in model.iterdir()) == before


def test_a_sentencepiece_model(llama, tmp_path):
    build(config("mock", llama), tmp_path / "engine.tar")
    tokenizer = Tokenizer.load(unpacked(tmp_path / "engine.tar", tmp_path / "engine") / "tokenizer")
    for text, ids in zip(TEXTS, sentencepiece_ids(llama, TEXTS), strict=True):
        assert tokenizer.encode(text, add_special_tokens=False) == ids
        assert tokenizer.encode(text) == [1, *ids]
        assert tokenizer.decode(ids) == text


def test_two_builds_are_the_same_bytes(llama, tmp_path):
    for name in ("one.tar", "two.tar"):
        build(config("mock", llama), tmp_path / name)
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()


def test_a_model_in_a_tar(llama, tmp_path):
    with tarfile.open(tmp_path / "model.tar", "w") as archive:
        for file in llama.iterdir():
            archive.add(file, file.name)
    with FileServer(tmp_path / "model.tar") as server:
        build(config("mock", server.url), tmp_path / "engine.tar")
    with tarfile.open(tmp_path / "engine.tar") as built:
        assert "tokenizer/tokenizer.json" in built.getnames()


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"tokenizer.model": b"nonsense"}, "its files cannot be read"),
        (
            {"vocab.json": b"[]", "merges.txt": b"", "config.json": b'{"model_type": "gpt2"}'},
            "converting it fails",
        ),
        ({"config.json": b'{"model_type": "wonder"}'}, "wonder"),
        (
            {
                "tokenizer_config.json": b'{"tokenizer_class": "A", "auto_map": {"AutoTokenizer": ["a.A", null]}}'
            },
            "needs code that comes with the model, which is not run",
        ),
    ],
)
def test_a_tokenizer_that_none_can_be_made_from(llama, tmp_path, files, reason):
    model = shutil.copytree(llama, tmp_path / "model")
    if "vocab.json" in files:
        (model / "tokenizer.model").unlink()
    for name, content in files.items():
        (model / name).write_bytes(content)
    (model / "a.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(TokenizerNotConverted, match=reason) as caught:
        build(config("mock", model), tmp_path / "engine.tar")
    assert str(tmp_path) not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


def test_one_that_would_divide_texts_otherwise(tmp_path):
    """Llama's form takes no account of a normalisation that is in tokenizer.model."""
    model = sentencepiece_model(tmp_path / "model", **{**LLAMA, "normalization_rule_name": "nmt_nfkc_cf"})
    with pytest.raises(TokenizerNotConverted, match=r"the converted one splits 'H.*' differently"):
        build(config("mock", model), tmp_path / "engine.tar")
    assert not (tmp_path / "engine.tar").exists()


# Not in the order in which older files have them.
LISTED = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[THINK]", "[/THINK]", "<pad>"]


@pytest.mark.parametrize("special", [None, LISTED])
def test_a_tekken_json(special, tmp_path):
    model = tekken_model(tmp_path / "model", tekken(special=special))
    before = sorted(path.name for path in model.iterdir())
    build(config("mock", model), tmp_path / "engine.tar")
    tokenizer = Tokenizer.load(unpacked(tmp_path / "engine.tar", tmp_path / "engine") / "tokenizer")
    texts = [*TEXTS, *CORPUS]
    for text, ids in zip(texts, tekken_ids(model, texts), strict=True):
        assert tokenizer.encode(text, add_special_tokens=False) == ids
        assert tokenizer.encode(text) == [1, *ids]
        assert tokenizer.decode([1, *ids, 2]) == text
    assert tokenizer.encode("<s>[INST][/INST]<SPECIAL_29>") == [1, 3, 4, 29]
    assert tokenizer.encode("[THINK]", add_special_tokens=False) == [5] or special is None
    assert tokenizer.end_ids == {2}
    assert (
        tokenizer.vocab_size
        == json.loads((model / "tekken.json").read_text())["config"]["default_vocab_size"]
    )
    assert sorted(path.name for path in model.iterdir()) == before


@pytest.mark.parametrize("own", [None, {"tokenizer_class": "MistralCommonTokenizer", "pad_token": "[IMG]"}])
def test_the_chat_template_of_a_model_with_a_tekken_json(own, tmp_path):
    """It begins a prompt with `bos_token`, which would be nothing if no file named it."""
    model = tekken_model(tmp_path / "model", tekken())
    template = "{{ bos_token }}{% for m in messages %}[INST]{{ m.content }}[/INST]{% endfor %}{{ pad_token }}"
    (model / "chat_template.jinja").write_text(template)
    if own is not None:
        (model / "tokenizer_config.json").write_text(json.dumps(own))
    build(config("mock", model), tmp_path / "engine.tar")
    made = unpacked(tmp_path / "engine.tar", tmp_path / "engine") / "tokenizer"
    chat = ChatTemplate.load(made)
    padding = "<pad>" if own is None else "[IMG]"
    assert chat.render([{"role": "user", "content": "Hi"}]) == f"<s>[INST]Hi[/INST]{padding}"
    written = json.loads((made / "tokenizer_config.json").read_text())
    assert written["tokenizer_class"] == (
        "PreTrainedTokenizerFast" if own is None else "MistralCommonTokenizer"
    )
    if own is not None:
        assert json.loads((model / "tokenizer_config.json").read_text()) == own


def test_without_a_beginning_and_an_end(tmp_path):
    model = tekken_model(tmp_path / "model", tekken(special=["<unk>"]))
    build(config("mock", model), tmp_path / "engine.tar")
    tokenizer = Tokenizer.load(unpacked(tmp_path / "engine.tar", tmp_path / "engine") / "tokenizer")
    assert tokenizer.encode(TEXTS[0]) == tekken_ids(model, TEXTS)[0]


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "the pattern in tekken.json is not valid"),
        ("a{1000000000}", "the pattern in tekken.json is not valid"),
        ("x*", "converting it fails"),  # tiktoken panics
        ("(a+)+$|.", "the converted one "),
        ("\\w+", "the converted one splits"),  # it keeps what a pattern does not match
    ],
)
def test_a_tekken_json_with_another_pattern(pattern, reason, tmp_path):
    content = tekken()
    content["config"]["pattern"] = pattern
    with pytest.raises(TokenizerNotConverted, match=reason) as caught:
        build(config("mock", tekken_model(tmp_path / "model", content)), tmp_path / "engine.tar")
    assert "/proc" not in str(caught.value)


def test_a_damaged_tekken_json(tmp_path):
    model = tekken_model(tmp_path / "model", tekken(special=["<unk>", "<s>", "the"]))
    with pytest.raises(TokenizerNotConverted, match="an ordinary token with the text of a special one"):
        build(config("mock", model), tmp_path / "engine.tar")
    (model / "tekken.json").write_text("[" * 100_000)
    with pytest.raises(CheckpointInvalid, match=r"tekken\.json is not JSON, or nested too deeply"):
        build(config("mock", model), tmp_path / "engine.tar")
