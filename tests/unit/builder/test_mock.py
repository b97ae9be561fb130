import errno
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from builder.engines.mock import MakeMock, counting_tokenizer
from builder.step import Model
from shared.errors import CheckpointInvalid

TOKENIZER = counting_tokenizer()


def make(state):
    MakeMock().run(state, lambda done, total=None: None)
    return json.loads((state.engine_dir / "mock.json").read_text())


def test_first_tokens_decode_to_numbers(state):
    script = make(state)
    tokenizer = Tokenizer.from_file(str(state.tokenizer_dir / "tokenizer.json"))
    first = script["first_token_id"]
    assert tokenizer.decode(range(first, first + 4)) == "0 1 2 3"
    assert tokenizer.decode([first + script["token_count"] - 1]) == "9999"


@given(st.lists(st.integers(0, 9999), min_size=1))
def test_text_is_counted_exactly(numbers):
    text = " ".join(map(str, numbers))
    assert TOKENIZER.decode(TOKENIZER.encode(text).ids) == text


@given(st.lists(st.text("abcxyz,.!-'ü", min_size=1)))
def test_unknown_words_are_one_token_each(words):
    assert TOKENIZER.encode(" ".join(words)).ids == [0] * len(words)


@pytest.mark.parametrize("trigger", ["crash", "error", "hang"])
def test_a_prompt_can_ask_for_trouble(state, trigger):
    script = make(state)
    assert script[f"{trigger}_id"] in TOKENIZER.encode(f"please <{trigger}> now").ids


@pytest.mark.parametrize("setting", ["tokens_per_second", "time_to_first_token_ms"])
def test_a_prompt_can_ask_for_its_own_speed(state, setting):
    script = make(state)
    ids = [script[f"{setting}_id"], script["first_token_id"] + 250]
    assert TOKENIZER.encode(f"<{setting}> 250 and more").ids[:2] == ids


def test_end_token_is_known_to_the_runner(state):
    make(state)
    config = json.loads((state.tokenizer_dir / "generation_config.json").read_text())
    assert TOKENIZER.id_to_token(config["eos_token_id"]) == "</s>"


def test_with_a_model_ordinary_tokens_are_used(state, model_dir):
    tokenizer = counting_tokenizer()
    tokenizer.add_special_tokens(["<late>"])
    tokenizer.save(str(model_dir / "tokenizer.json"))
    state.model = Model("tiny", None, model_dir)
    script = make(state)
    assert (script["first_token_id"], script["token_count"]) == (5, 10_000)
    assert not state.tokenizer_dir.exists()


def test_triggers_that_a_tokenizer_lacks_are_null(state, model_dir):
    content = json.loads(counting_tokenizer().to_str().replace("<crash>", "<cr>"))
    (model_dir / "tokenizer.json").write_text(json.dumps(content))
    state.model = Model("tiny", None, model_dir)
    assert make(state)["crash_id"] is None


@pytest.mark.parametrize(
    ("ids", "longest"),
    [([5], (5, 1)), ([0, 1, 4, 5, 6, 9], (4, 3)), ([7, 8, 1, 2], (1, 2)), ([0, 2**32 - 2], (0, 1))],
)
def test_the_longest_run_of_ids_is_found_however_large_they_are(state, model_dir, ids, longest):
    """Each number up to the largest id was looked at."""
    content = json.loads(Tokenizer(WordLevel({}, unk_token="w")).to_str())  # with them, it counts, too
    content["model"]["vocab"] = {f"w{id_}": id_ for id_ in ids}
    (model_dir / "tokenizer.json").write_text(json.dumps(content))
    state.model = Model("tiny", None, model_dir)
    script = make(state)
    assert (script["first_token_id"], script["token_count"]) == longest


@pytest.mark.parametrize("text", ["", "{}", '{"model": 3}'])
def test_broken_tokenizer(state, model_dir, text):
    (model_dir / "tokenizer.json").write_text(text)
    state.model = Model("tiny", None, model_dir)
    with pytest.raises(CheckpointInvalid, match=r"tokenizer\.json"):
        make(state)


def test_tokenizer_without_ordinary_tokens(state, model_dir):
    content = json.loads(counting_tokenizer().to_str())
    content["model"]["vocab"] = {token["content"]: token["id"] for token in content["added_tokens"]}
    (model_dir / "tokenizer.json").write_text(json.dumps(content))
    state.model = Model("tiny", None, model_dir)
    with pytest.raises(CheckpointInvalid, match="no ordinary tokens"):
        make(state)


def test_a_full_disk_is_not_hidden(state, monkeypatch):
    """The step's caller makes NotEnoughSpace of it."""
    write_text = Path.write_text

    def full(path, *arguments, **options):
        if path.name == "tokenizer.json":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write_text(path, *arguments, **options)

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        make(state)
