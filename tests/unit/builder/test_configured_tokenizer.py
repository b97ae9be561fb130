"""The tokenizer.json that is served is the one that transformers makes of all files of the tokenizer."""

import json
import random
import subprocess

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from builder.generation_config import generation_config
from builder.step import Model
from builder.tokenizer.configured import configured
from builder.tokenizer.step import MakeTokenizer
from shared.errors import CheckpointInvalid, TokenizerFilesDisagree
from shared.layout import PROJECT_ROOT, Layout

DEMO = PROJECT_ROOT / "demo/model"
TEXTS = [
    "", " ", "a", " a b", "a</s>", "<s>a b</s> b", "x <|im_end|> y<|im_start|>b", "ab abab  a\n", "<pad>a<unk>é",
]  # fmt: skip
MUTATIONS = 12  # of each family


def demo():
    return json.loads((DEMO / "tokenizer.json").read_text())


def made(model, **parts):
    tokenizer = Tokenizer(model)
    for name, part in parts.items():
        if name != "special":
            setattr(tokenizer, name, part)
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in parts.get("special", ())])
    return json.loads(tokenizer.to_str())


def sentencepiece(**parts):
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b", "▁a", "ab"]
    vocabulary = {piece: id_ for id_, piece in enumerate(pieces)}
    model = models.BPE(
        vocab=vocabulary,
        merges=[("▁", "a"), ("a", "b")],
        unk_token="<unk>",
        byte_fallback=True,
        fuse_unk=True,
    )
    return made(model, decoder=decoders.Metaspace(), special=["<unk>", "<s>", "</s>"], **parts)


FAMILIES = {
    "demo": demo,
    "gpt2": lambda: demo() | {"post_processor": None, "added_tokens": []},
    "byte-level with a space": lambda: (
        demo() | {"pre_tokenizer": demo()["pre_tokenizer"] | {"add_prefix_space": True}}
    ),
    "split, then bytes": lambda: (
        demo()
        | {
            "pre_tokenizer": json.loads(
                pre_tokenizers.Sequence([pre_tokenizers.Digits(), pre_tokenizers.ByteLevel(False)])
                .__getstate__()
                .decode()
            )
        }
    ),
    "llama": lambda: sentencepiece(
        normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    ),
    "metaspace": lambda: sentencepiece(pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="first")),
    "gemma": lambda: sentencepiece(normalizer=normalizers.Replace(" ", "▁")),
    "unigram": lambda: made(
        models.Unigram([("<unk>", 0.0), ("</s>", 0.0), ("▁", -2.0), ("a", -3.0), ("b", -3.0)], unk_id=0),
        pre_tokenizer=pre_tokenizers.Metaspace(),
    ),
    "words": lambda: made(
        models.WordLevel({"<unk>": 0, "a": 1, "b": 2, "</s>": 3}, unk_token="<unk>"),
        pre_tokenizer=pre_tokenizers.Whitespace(),
    ),
    "wordpiece": lambda: made(
        models.WordPiece({"<unk>": 0, "a": 1, "b": 2, "##b": 3, "</s>": 4}, unk_token="<unk>"),
        normalizer=normalizers.Lowercase(),
        pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
    ),
}
CLASSES = [
    None, "PreTrainedTokenizerFast", "LlamaTokenizerFast", "LlamaTokenizer", "GPT2Tokenizer", "Qwen2Tokenizer",
    "GPTNeoXTokenizerFast", "GemmaTokenizerFast", "CohereTokenizerFast",
]  # fmt: skip
TOKENS = ["<s>", "</s>", "<unk>", "<pad>", "<|im_start|>", "<|im_end|>", "a", "ab"]


def token(choose):
    text = choose.choice(TOKENS)
    if choose.random() < 0.5:
        return text
    flags = {name: choose.random() < 0.3 for name in ("lstrip", "rstrip", "single_word")}
    # Two versions of the library handle special tokens that a normalizer changes differently.
    return {"__type": "AddedToken", "content": text, **flags, "normalized": False}


def plain(value):
    return {key: one for key, one in value.items() if key != "__type"} if isinstance(value, dict) else value


def mutated(content, choose):
    """The files of a tokenizer, with settings at random."""
    config = {"tokenizer_class": choose.choice(CLASSES)} if choose.random() < 0.9 else {}
    older = {}
    for kind in ("bos", "eos", "unk", "pad"):
        if choose.random() < 0.7:
            config[f"{kind}_token"] = None if choose.random() < 0.1 else token(choose)
        if choose.random() < 0.2:
            older[f"{kind}_token"] = plain(token(choose))
    for name in ("add_bos_token", "add_eos_token"):
        if choose.random() < 0.3:
            config[name] = choose.random() < 0.5
    if choose.random() < 0.3 and str(config.get("tokenizer_class"))[:5] not in ("Llama", "Coher"):
        config["add_prefix_space"] = choose.choice([True, False, None])
    if choose.random() < 0.3:
        config["additional_special_tokens"] = [token(choose) for _ in range(2)]
    model = {"model_type": choose.choice(["llama", "gemma", "qwen2", "gpt_neox", "gpt2", "phi3", "glm4"])}
    files = {"tokenizer.json": content, "tokenizer_config.json": config, "config.json": model}
    if choose.random() < 0.5:
        config["added_tokens_decoder"] = {
            str(one["id"]): {key: value for key, value in one.items() if key != "id"}
            | {"special": choose.random() < 0.5}
            for one in content["added_tokens"]
        }
        if choose.random() < 0.5:
            entry = {"content": "<|im_end|>", "special": choose.random() < 0.5, "normalized": False}
            config["added_tokens_decoder"][str(Tokenizer.from_str(json.dumps(content)).get_vocab_size())] = (
                entry
            )
    elif older:
        files["special_tokens_map.json"] = older
    return files


def write(folder, files):
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    return folder


def of_transformers(folders, texts=TEXTS):
    asked = json.dumps({"folders": [str(folder) for folder in folders], "texts": list(texts)})
    command = [str(Layout.current().tokenizer_converter), "-P", "tests/support/transformers_tokens.py"]
    ran = subprocess.run(command, input=asked, capture_output=True, text=True, check=True, cwd=PROJECT_ROOT)
    return json.loads(ran.stdout)


def ours(folder, texts=TEXTS):
    text = configured(folder)
    tokenizer = Tokenizer.from_str(text or (folder / "tokenizer.json").read_text())
    ids = [tokenizer.encode(one, add_special_tokens=False).ids for one in texts]
    return {
        "ids": ids,
        "all_ids": [tokenizer.encode(one).ids for one in texts],
        "decoded": [tokenizer.decode(one, skip_special_tokens=True) for one in ids],
    }


def test_it_is_the_tokenizer_of_transformers(tmp_path):
    folders = []
    for index, (family, make) in enumerate(FAMILIES.items()):  # transformers looks for names in the path
        choose = random.Random(family)
        folders += [
            write(tmp_path / f"{index}-{number}", mutated(make(), choose)) for number in range(MUTATIONS)
        ]
    theirs = of_transformers(folders)
    compared, wrong = 0, []
    for folder, expected in zip(folders, theirs, strict=True):
        if expected is None:
            continue
        try:
            got = ours(folder)
        except TokenizerFilesDisagree:
            continue
        compared += 1
        if got != expected:
            wrong.append((str(folder.relative_to(tmp_path)), (folder / "tokenizer_config.json").read_text()))
    assert wrong == []
    assert compared > 0.7 * len(folders)


def special(text, **more):
    return {"content": text, "special": True, "normalized": False, **more}


@pytest.fixture
def files():
    return {
        "tokenizer.json": demo(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "added_tokens_decoder": {"0": special("<s>"), "1": special("</s>")},
        },
    }


def served(folder):
    return Tokenizer.from_str(configured(folder) or (folder / "tokenizer.json").read_text())


def test_files_that_agree_are_left_alone(tmp_path, files):
    assert configured(write(tmp_path / "model", files)) is None
    assert configured(DEMO) is None


def test_tokens_of_the_config_are_tokens(tmp_path, files):
    config = files["tokenizer_config.json"]
    config["eos_token"] = "<|im_end|>"
    config["added_tokens_decoder"] |= {"1024": special("<|im_start|>"), "1025": special("<|im_end|>")}
    folder = write(tmp_path / "model", files)
    text = "<|im_start|>user\na<|im_end|>\n"
    assert served(folder).encode(text, add_special_tokens=False).ids == [1024, 471, 285, 200, 66, 1025, 200]
    (folder / "tokenizer.json").write_text(configured(folder))
    assert json.loads(generation_config(folder))["eos_token_id"] == [1025]


def test_special_in_the_config_is_special(tmp_path, files):
    for entry in files["tokenizer.json"]["added_tokens"]:
        entry["special"] = False
    tokenizer = served(write(tmp_path / "model", files))
    assert tokenizer.decode([4, 1, 0, 5], skip_special_tokens=True) == "#$"


@pytest.mark.parametrize("place", ["tokenizer_config.json", "special_tokens_map.json"])
def test_an_end_token_of_the_vocabulary_is_found(tmp_path, files, place):
    files["tokenizer.json"]["added_tokens"].pop()
    files["tokenizer_config.json"] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    files.setdefault(place, {})["eos_token"] = "</s>"
    folder = write(tmp_path / "model", files)
    assert served(folder).encode("a</s>", add_special_tokens=False).ids == [66, 1]
    assert json.loads(generation_config(folder))["eos_token_id"] == [1]


def test_an_end_token_that_the_model_cannot_write_is_no_end_id(tmp_path, files):
    files["tokenizer_config.json"] |= {"eos_token": "<new>"}
    files["config.json"] = {"vocab_size": 1024}
    folder = write(tmp_path / "model", files)
    (folder / "tokenizer.json").write_text(configured(folder))
    assert generation_config(folder) is None


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"added_tokens_decoder": {"7": special("</s>")}}, "'</s>' the id 7, .* it gets 1"),
        ({"added_tokens_decoder": {"2000": special("<new>")}}, "'<new>' the id 2000, .* it gets 1024"),
        ({"tokenizer_class": "LlamaTokenizer", "bos_token": None}, "add_bos_token is true"),
    ],
)
def test_files_that_disagree_are_refused(tmp_path, files, changed, says):
    files["tokenizer_config.json"] |= changed
    with pytest.raises(TokenizerFilesDisagree, match=says):
        configured(write(tmp_path / "model", files))


def test_ids_of_added_tokens_json_that_disagree_are_refused(tmp_path, files):
    del files["tokenizer_config.json"]["added_tokens_decoder"]
    files["added_tokens.json"] = {"<new>": 1030}
    with pytest.raises(
        TokenizerFilesDisagree, match=r"added_tokens\.json gives the token '<new>' the id 1030"
    ):
        configured(write(tmp_path / "model", files))


@pytest.mark.parametrize(("wanted", "scheme"), [(True, "never"), (False, "first")])
def test_a_space_in_front_that_is_not_wanted_is_refused(tmp_path, wanted, scheme):
    content = sentencepiece(pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme=scheme))
    config = {"tokenizer_class": "LlamaTokenizer", "add_prefix_space": wanted}
    folder = write(tmp_path / "model", {"tokenizer.json": content, "tokenizer_config.json": config})
    with pytest.raises(TokenizerFilesDisagree, match=f"add_prefix_space in .* is {str(wanted).lower()}"):
        configured(folder)


@pytest.mark.parametrize(
    "changed",
    [
        {"added_tokens_decoder": [1]},
        {"added_tokens_decoder": {"x": special("<x>")}},
        {"added_tokens_decoder": {"5": 7}},
        {"eos_token": 5},
        {"eos_token": {"content": "</s>", "lstrip": "no"}},
        {"additional_special_tokens": "<x>"},
        {"add_prefix_space": "yes"},
        {"tokenizer_class": "LlamaTokenizer", "add_bos_token": "yes"},
    ],
)
def test_values_of_another_form_are_refused(tmp_path, files, changed):
    files["tokenizer_config.json"] |= changed
    with pytest.raises(CheckpointInvalid, match=r"tokenizer_config\.json has a .* not of the form"):
        configured(write(tmp_path / "model", files))


def test_the_model_itself_is_not_changed(tmp_path, files, state):
    files["tokenizer_config.json"]["added_tokens_decoder"]["1024"] = special("<|im_end|>")
    folder = write(tmp_path / "model", files)
    before = (folder / "tokenizer.json").read_bytes()
    state.model = Model("tiny", None, folder)
    MakeTokenizer().run(state, lambda *_: None)
    assert state.model.path != folder
    made = Tokenizer.from_file(str(state.model.path / "tokenizer.json"))
    assert made.token_to_id("<|im_end|>") == 1024
    assert (folder / "tokenizer.json").read_bytes() == before
    assert (state.model.path / "tokenizer_config.json").is_symlink()
