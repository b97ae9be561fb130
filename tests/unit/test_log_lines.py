import json

from shared.log_lines import LINE_BYTES, LineCutter, lost_notice, shortened


def test_lines_are_cut_from_any_pieces():
    text = b"one\ntwo\n\nthree"
    for size in range(1, len(text) + 1):
        cutter = LineCutter()
        lines = [line for at in range(0, len(text), size) for line in cutter.feed(text[at : at + size])]
        assert [*lines, *cutter.end()] == [b"one\n", b"two\n", b"\n", b"three\n"]


def test_a_long_line_is_cut_with_what_was_left_out_and_takes_no_memory():
    cutter = LineCutter()
    for _ in range(100):
        assert cutter.feed(b"x" * 10_000) == []
        assert len(cutter._line) < LINE_BYTES
    (line, next_line) = cutter.feed(b"\nnext\n")
    assert len(line) <= LINE_BYTES
    kept, _, mark = line.partition(b" ")
    assert mark == b"[%d bytes left out]\n" % (1_000_000 - len(kept))
    assert next_line == b"next\n"
    assert cutter.end() == []


def test_the_longest_line_is_whole():
    (line,) = LineCutter().feed(b"x" * (LINE_BYTES - 64) + b"\n")
    assert b"left out" not in line


def test_a_line_that_has_not_ended_can_be_passed_on_and_still_counts():
    cutter = LineCutter()
    cutter.feed(b"a" * 3000)
    first = cutter.rest()
    (second,) = cutter.feed(b"b" * 3000 + b"\n")
    assert len(first + second) <= LINE_BYTES
    assert second.endswith(b"b [%d bytes left out]\n" % (6000 - 3000 - 1032))


def test_texts_keep_their_beginning_or_their_end():
    assert shortened("abc", 3) == "abc"
    assert shortened("abcdef", 3) == "abc [3 characters left out]"
    assert shortened("abcdef", 3, keep_end=True) == "[3 characters left out] def"
    assert shortened("abc", 3, missing=7) == "abc [7 characters left out]"


def test_lost_lines_are_told_as_an_event():
    assert json.loads(lost_notice(3))["event"].endswith(": 3")
