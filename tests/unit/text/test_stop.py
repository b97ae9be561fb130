import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.text import stop
from runner.text.stop import StopMatcher, parse_stop_sequences


def cut_at_first(text, stops):
    return text[: min((text.find(sequence) for sequence in stops if sequence in text), default=None)]


def pushed(stops, texts):
    matcher = StopMatcher(stops)
    return [matcher.push(text) for text in texts], matcher


@given(
    st.lists(st.text("ab", max_size=4), max_size=10),
    st.lists(st.text("abc", min_size=1, max_size=5), max_size=4),
)
@settings(max_examples=500)
def test_text_is_cut_where_the_first_stop_sequence_begins(texts, stops):
    sent, matcher = pushed(stops, texts)
    whole = "".join(texts)
    assert "".join(sent) + matcher.flush() == cut_at_first(whole, stops)
    assert matcher.stopped == any(sequence in whole for sequence in stops)


@given(
    st.lists(st.text("ab", max_size=4), max_size=10),
    st.lists(st.text("ab", min_size=1, max_size=5), max_size=4),
)
def test_no_more_is_kept_back_than_could_begin_a_stop_sequence(texts, stops):
    matcher = StopMatcher(stops)
    text = sent = ""
    for piece in texts:
        sent += matcher.push(piece)
        text += piece
        kept = text[len(sent) :]
        assert matcher.stopped or any(sequence.startswith(kept) for sequence in [*stops, ""])


def test_a_stop_sequence_over_two_texts_does_not_leak():
    sent, matcher = pushed(["STOP"], ["hello ST", "OP"])
    assert sent == ["hello ", ""]
    assert matcher.stopped


def test_a_stop_sequence_inside_one_text():
    sent, matcher = pushed(["STOP"], ["hello STOP, world"])
    assert sent == ["hello "]
    assert matcher.stopped


@pytest.mark.parametrize("stops", [["\n", "\nUser:"], ["\nUser:", "\n"]])
def test_of_two_that_begin_alike_the_shorter_stops_at_once(stops):
    sent, matcher = pushed(stops, ["hello", "\n"])
    assert sent == ["hello", ""]
    assert matcher.stopped


def test_a_stop_sequence_that_begins_inside_a_failed_one():
    sent, matcher = pushed(["aab"], ["a", "a", "a", "b"])
    assert sent == ["", "", "a", ""]
    assert matcher.stopped


def test_one_that_begins_earlier_but_ends_later_wins():
    sent, matcher = pushed(["abcd", "bc"], ["xabc", "d"])
    assert (sent, matcher.stopped) == (["x", ""], True)


def test_one_that_begins_later_wins_once_the_earlier_has_failed():
    sent, matcher = pushed(["abcd", "bc"], ["xabc", "x"])
    assert (sent, matcher.stopped) == (["x", "a"], True)


def test_one_that_begins_later_wins_when_the_text_ends_before_the_earlier():
    sent, matcher = pushed(["abcd", "bc"], ["xabc"])
    assert (sent, matcher.flush(), matcher.stopped) == (["x"], "a", True)


def test_text_after_a_stop_sequence_is_dropped():
    sent, matcher = pushed(["STOP"], ["STOP", "more", "STOP"])
    assert sent == ["", "", ""]
    assert matcher.flush() == ""


def test_the_beginning_of_a_stop_sequence_comes_with_flush():
    sent, matcher = pushed(["STOP"], ["hello ST"])
    assert sent == ["hello "]
    assert matcher.flush() == "ST"
    assert not matcher.stopped


def test_without_stop_sequences_nothing_is_kept_back():
    sent, matcher = pushed(["", ""], ["hello", " world"])
    assert sent == ["hello", " world"]
    assert not matcher.stopped


def test_the_work_is_linear_in_the_text(monkeypatch):
    steps = 0
    step = stop._Automaton.step

    def counting_step(automaton, state, character):
        nonlocal steps
        steps += 1
        return step(automaton, state, character)

    matcher = StopMatcher(["a" * 1000 + "b"])
    monkeypatch.setattr(stop._Automaton, "step", counting_step)
    for _ in range(5000):
        matcher.push("a")
    assert steps == 5000


@pytest.mark.parametrize(
    ("value", "stops"),
    [
        (None, ()),
        ("", ()),
        ("STOP", ("STOP",)),
        ("a, b", ("a", " b")),
        ("a,,b,", ("a", "b")),
        ('["a,b", "\\n", ""]', ("a,b", "\n")),
        ("[]", ()),
        ("[INST],[/INST]", ("[INST]", "[/INST]")),
        ("[1,2]", ("[1", "2]")),
        ("[" * 100_000, ("[" * 100_000,)),
    ],
)
def test_parse_stop_sequences(value, stops):
    assert parse_stop_sequences(value) == stops
