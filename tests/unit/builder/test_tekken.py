"""What is read of a tekken.json, and what is wrong with a damaged one."""

import json

import pytest

from builder.tokenizer.tekken import read_tekken
from shared.errors import CheckpointInvalid, TokenizerNotConverted
from tests.support.tokenizers import tekken


def read(folder, content):
    (folder / "tekken.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return read_tekken(folder / "tekken.json")


def test_an_older_file(tmp_path):
    content = tekken(unused=7)
    found = read(tmp_path, content)
    assert found.pattern == content["config"]["pattern"]
    assert found.special[:3] == ["<unk>", "<s>", "</s>"]
    assert found.special[17:22] == [
        "[SYSTEM_PROMPT]",
        "[/SYSTEM_PROMPT]",
        "[TOOL_CONTENT]",
        "<SPECIAL_20>",
        "<SPECIAL_21>",
    ]
    assert len(found.special) == 30
    assert found.tokens[:256] == [bytes([value]) for value in range(256)]
    assert len(found.tokens) == len(content["vocab"]) - 7


def test_a_file_that_lists_its_special_tokens(tmp_path):
    found = read(tmp_path, tekken(special=["<unk>", "[A]"]))
    assert found.special == ["<unk>", "[A]", *(f"<SPECIAL_{id_}>" for id_ in range(2, 30))]


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, '{"config": ' + "9" * 5000 + "}"])
def test_what_is_not_json(text, tmp_path):
    with pytest.raises(CheckpointInvalid, match=r"tekken\.json"):
        read(tmp_path, text)


def changed(place, value):
    """A change of what stands at `place` in a file; None removes it."""

    def change(content):
        *way, last = place
        for key in way:
            content = content[key]
        if value is None:
            del content[last]
        else:
            content[last] = value

    return change


SIZE = ("config", "default_vocab_size")
SPECIAL = ("config", "default_num_special_tokens")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (changed(["config"], None), "no valid config"),
        (changed(["config"], []), "no valid config"),
        (changed(["config", "pattern"], None), "no valid pattern"),
        (changed(["config", "pattern"], 1), "no valid pattern"),
        (changed(["config", "pattern"], "\ud800"), "not Unicode"),
        (changed(["vocab"], None), "no valid vocab"),
        (changed(["vocab"], {}), "no valid vocab"),
        (changed(["vocab", 300], 5), "no valid rank"),
        (changed(["vocab", 300, "rank"], 299), "ranks in its vocab that are not"),
        (changed(["vocab", 300, "rank"], 10**30), "ranks in its vocab that are not"),
        (changed(["vocab", 1, "rank"], True), "no valid rank"),
        (changed(["vocab", 300, "token_bytes"], None), "no valid token_bytes"),
        (changed(["vocab", 300, "token_bytes"], "a"), "not base64"),
        (changed(["vocab", 300, "token_bytes"], "é==="), "not base64"),
        (changed(["vocab", 300, "token_bytes"], ""), "without bytes"),
        (changed(["vocab", 300, "token_bytes"], "YQ=="), "a token twice"),
        (changed(["vocab", 97, "token_bytes"], "enp6eno="), "begin with the 256 bytes"),
        (changed(SIZE, None), "no valid default_vocab_size"),
        (changed(SIZE, 1e400), "no valid default_vocab_size"),
        (changed(SIZE, 10**4000), "numbers of tokens"),
        (changed(SIZE, -1), "numbers of tokens"),
        (changed(SIZE, 200), "numbers of tokens"),
        (changed(SPECIAL, 10**12), "numbers of tokens"),
        (changed(SPECIAL, 0), "numbers of tokens"),
        (changed(["config", "version"], "v11"), "does not list its special tokens"),
        (changed(["config", "version"], []), "does not list its special tokens"),
        (changed(["special_tokens"], {}), "no valid special_tokens"),
        (changed(["special_tokens"], [{"rank": 1, "token_str": "<s>"}]), "ranks in its special_tokens"),
        (changed(["special_tokens"], [{"rank": 0, "token_str": 1}]), "no valid token_str"),
        (changed(["special_tokens"], [{"rank": 0, "token_str": ""}]), "without a name"),
        (changed(["special_tokens"], [{"rank": 0, "token_str": "<SPECIAL_7>"}]), "a special token twice"),
        (changed(["special_tokens"], [{"rank": 0, "token_str": "\udfff"}]), "not Unicode"),
        (changed(["special_tokens"], [{"rank": n, "token_str": str(n)} for n in range(31)]), "more than 30"),
    ],
)
def test_a_damaged_file(change, reason, tmp_path):
    content = tekken()
    change(content)
    with pytest.raises(TokenizerNotConverted, match=reason):
        read(tmp_path, content)
