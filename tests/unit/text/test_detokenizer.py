import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, pre_tokenizers

from runner.text import pieces
from runner.text.detokenizer import Detokenizer
from runner.text.tokenizer import Tokenizer


@st.composite
def chunks_of_ids(draw, tokenizer):
    ids = st.integers(0, tokenizer.vocab_size + 2)  # also some that are not in the vocabulary
    return draw(st.lists(st.lists(ids, max_size=5), max_size=12))


@given(data=st.data())
@settings(max_examples=150)
def test_any_tokens_however_cut_give_the_text_of_the_whole(any_tokenizer, data):
    chunks = data.draw(chunks_of_ids(any_tokenizer))
    whole = any_tokenizer.decode([token for chunk in chunks for token in chunk])
    detokenizer = Detokenizer(any_tokenizer)
    text = ""
    for chunk in chunks:
        text += detokenizer.push(chunk)
        assert whole.startswith(text)  # what was sent stays true
    assert text + detokenizer.flush() == whole


def test_a_decoder_that_strips_the_end_gives_its_text_at_the_end(ids_of):
    words = tokenizers.models.WordLevel({"a": 0, " ": 1}, unk_token="a")
    library_tokenizer = tokenizers.Tokenizer(words)
    library_tokenizer.decoder = decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 0, 1)])
    tokenizer = Tokenizer(library_tokenizer)
    detokenizer = Detokenizer(tokenizer)
    assert detokenizer.push(ids_of(tokenizer, "a", " ", "a", " ")) == ""
    assert detokenizer.flush() == "a a"


# Special tokens that are written out are encoded as themselves, and are no text when decoded.
@given(text=st.text().filter(lambda text: "<s>" not in text and "</s>" not in text))
def test_any_text_survives_byte_level(gpt, text):
    ids = gpt.encode(text)
    detokenizer = Detokenizer(gpt)
    assert "".join(detokenizer.push([token]) for token in ids) + detokenizer.flush() == text


@given(data=st.binary())
def test_broken_bytes_become_the_replacement_characters_of_the_library(gpt, data):
    characters = {byte: character for character, byte in pieces._BYTE_LEVEL_ALPHABET.items()}
    ids = [gpt._tokenizer.token_to_id(characters[byte]) for byte in data]
    detokenizer = Detokenizer(gpt)
    assert "".join(detokenizer.push([token]) for token in ids) + detokenizer.flush() == gpt.decode(ids)


def test_the_byte_level_alphabet_is_the_librarys():
    assert set(pieces._BYTE_LEVEL_ALPHABET) == set(pre_tokenizers.ByteLevel.alphabet())


def test_a_character_over_several_tokens_comes_whole(gpt, ids_of):
    detokenizer = Detokenizer(gpt)
    assert [detokenizer.push([token]) for token in ids_of(gpt, "ðŁĺ", "Ģ", "a")] == ["", "😀", "a"]


def test_a_byte_token_character_comes_whole(llama, ids_of):
    detokenizer = Detokenizer(llama)
    tokens = ids_of(llama, "a", "<0xC3>", "<0xA9>", "b")
    assert [detokenizer.push([token]) for token in tokens] == ["a", "", "", "éb"]


def test_a_literal_replacement_character_is_text_and_not_kept_back(gpt, ids_of):
    detokenizer = Detokenizer(gpt)
    assert [detokenizer.push([token]) for token in ids_of(gpt, "ï¿½", "a")] == ["�", "a"]


def test_broken_bytes_at_the_end_come_with_flush(gpt, ids_of):
    detokenizer = Detokenizer(gpt)
    assert detokenizer.push(ids_of(gpt, "a", "ðŁĺ")) == "a"
    assert detokenizer.flush() == "�"


def test_a_leading_space_stays_with_a_byte_level_tokenizer(gpt, ids_of):
    assert Detokenizer(gpt).push(ids_of(gpt, "Ġhello")) == " hello"


def test_words_keep_their_spaces_with_a_sentencepiece_tokenizer(llama, ids_of):
    detokenizer = Detokenizer(llama)
    assert [detokenizer.push([token]) for token in ids_of(llama, "▁hello", "▁hello")] == ["hello", " hello"]


def test_special_tokens_neither_show_nor_part_a_character(llama, ids_of):
    detokenizer = Detokenizer(llama)
    tokens = ids_of(llama, "<s>", "a", "<0xC3>", "</s>", "<0xA9>", "b")
    assert detokenizer.push(tokens) == "aéb"


@pytest.mark.parametrize("cycle", [["▁hello", "▁a", "b", "▁▁"], ["<0xC3>", "<0xA9>", "a"], ["<0xFF>"], [""]])
def test_the_work_is_linear_in_the_tokens(llama, ids_of, monkeypatch, cycle):
    """The original decoded the whole text again at each token."""
    decoded = []
    decode = pieces.Pieces._decode

    def counting_decode(self, tokens):
        decoded.extend(tokens)
        return decode(self, tokens)

    monkeypatch.setattr(pieces.Pieces, "_decode", counting_decode)
    tokens = ids_of(llama, *cycle) * (8000 // len(cycle))
    detokenizer = Detokenizer(llama)
    for token in tokens:
        detokenizer.push([token])
    detokenizer.flush()
    assert len(decoded) < 2 * len(tokens)
