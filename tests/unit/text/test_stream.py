from hypothesis import given, settings
from hypothesis import strategies as st

from runner.text.stop import parse_stop_sequences
from runner.text.stream import TextStream


def streamed(tokenizer, stops, chunks):
    stream = TextStream(tokenizer, stops)
    return [stream.push(chunk) for chunk in chunks], stream


@given(data=st.data())
@settings(max_examples=150)
def test_streamed_text_is_the_whole_text_cut_at_the_first_stop_sequence(any_tokenizer, data):
    ids = st.integers(0, any_tokenizer.vocab_size - 1)
    chunks = data.draw(st.lists(st.lists(ids, max_size=5), max_size=12))
    whole = any_tokenizer.decode([token for chunk in chunks for token in chunk])
    places = st.integers(0, len(whole))
    slices = st.tuples(places, st.integers(1, 6)).map(lambda place: whole[place[0] : sum(place)])
    stops = data.draw(st.lists(slices | st.text("ab �", min_size=1), max_size=3))
    texts, stream = streamed(any_tokenizer, stops, chunks)
    found = [whole.find(sequence) for sequence in stops if sequence and sequence in whole]
    assert "".join(texts) + stream.finish() == whole[: min(found, default=None)]
    assert stream.stopped == bool(found)


def test_a_stop_sequence_over_two_tokens(gpt, ids_of):
    texts, stream = streamed(gpt, ["STOP"], [[token] for token in ids_of(gpt, "Ġhello", "ST", "OP")])
    assert texts == [" hello", "", ""]
    assert stream.stopped


def test_a_stop_sequence_inside_one_token(gpt, ids_of):
    texts, stream = streamed(gpt, ["ell"], [ids_of(gpt, "Ġhello")])
    assert texts == [" h"]
    assert stream.stopped


def test_a_stop_sequence_with_a_comma(gpt):
    texts, stream = streamed(gpt, parse_stop_sequences('["b,c"]'), [gpt.encode("a,b,c")])
    assert texts == ["a,"]
    assert stream.stopped


def test_tokens_after_a_stop_sequence_are_neither_text_nor_counted(gpt, ids_of):
    texts, stream = streamed(gpt, ["ST"], [ids_of(gpt, "a", "ST", "b"), ids_of(gpt, "c")])
    assert texts == ["a", ""]
    assert stream.finish() == ""
    assert stream.token_count == 2


def test_a_stop_sequence_in_what_was_kept_back(llama, ids_of):
    texts, stream = streamed(llama, ["\n"], [ids_of(llama, "a", "<0x0A>")])
    assert texts == ["a"]
    assert stream.finish() == ""
    assert stream.stopped


def test_no_stop_sequence_ends_in_the_text_of_the_least_tokens(gpt, ids_of):
    chunks = [[token] for token in ids_of(gpt, "a", "ST", "b", "ST", "OP", "c")]
    for least, written in ((0, "a"), (1, "a"), (2, "aSTb"), (4, "aSTbSTOPc")):
        stream = TextStream(gpt, ["ST"], least)
        assert "".join(map(stream.push, chunks)) + stream.finish() == written
        assert stream.stopped == (least < 4)
    stream = TextStream(gpt, ["STOP"], 4)
    assert "".join(map(stream.push, chunks)) == "aSTb"  # it ends after them, and may begin before
