import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.config.document import MAX_DEPTH, MAX_VALUES, parse
from shared.errors import CogTritonError, ConfigDuplicateKey, ConfigNotYaml


def test_positions_and_data():
    document = parse("a: 1\nb:\n  c: [x,\n      y]\n  d: !!str 2\n", "c.yaml")
    assert document.data == {"a": 1, "b": {"c": ["x", "y"], "d": "2"}}
    assert document.positions[("b",)] == (2, 1)
    assert document.positions[("b", "c", 1)] == (4, 7)
    assert document.positions[("b", "d")] == (5, 3)


def test_what_is_not_there_stands_where_it_would_be():
    document = parse("a: 1\nb: &b {c: 2}\nd:\n  <<: *b\n", "c")
    assert document.position(("b", "missing", "more")) == (2, 1)
    assert document.position(("d", "c")) == (3, 1)
    assert document.position(("missing",)) == (1, 1)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("2024-01-01", "2024-01-01"),
        ("1e-05", 1e-05),
        ("1E3", 1000.0),
        ("1e", "1e"),
        ("0x1e3", 483),
        ("'1e3'", "1e3"),
        ("0", 0),
        ("-0", 0),
        ("0.5", 0.5),
        ("08", "08"),
        ("0o17", "0o17"),
        ("'0100'", "0100"),
        ("1:30:x", "1:30:x"),
    ],
)
def test_dates_are_text_and_numbers_those_of_json(written, read):
    assert parse(f"a: {written}", "c").data == {"a": read}


def test_characters_that_json_writes_as_two_halves():
    assert parse('{"a\\ud83d\\ude00": "\\ud83d\\ude00"}', "c").data == {"a😀": "😀"}


def test_aliases_and_merge_keys():
    text = "a: &a {x: 1, y: 1}\nb: {<<: *a, y: 2}\nc: *a\n"
    assert parse(text, "c").data == {"a": {"x": 1, "y": 1}, "b": {"x": 1, "y": 2}, "c": {"x": 1, "y": 1}}


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a: 1\nb: 2\na: 3", (1, 3)),
        ("x:\n  a: 1\n  'a': 1", (2, 3)),
        ("{a: 1, a: 2}", (1, 1)),
        ("x: [{<<: {}, <<: {}}]", (1, 1)),
    ],
)
def test_a_key_that_stands_twice(text, lines):
    with pytest.raises(ConfigDuplicateKey, match=f"on lines {lines[0]} and {lines[1]}"):
        parse(text, "c")


def bomb(levels: int) -> str:
    """Nine times nine times ... an item."""
    return "l0: &l0 [x]\n" + "".join(
        f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, levels)
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty; it must consist of lines like `engine: mock`"),
        ("- a", "it holds no mapping"),
        ("a: 1\n---\nb: 2", "line 2: expected a single document in the stream"),
        ("a: 1\n b: [", "line 2: "),
        ("a: 1\nb: 'x", "line 2: while scanning a quoted scalar: found unexpected end of stream"),
        ("a: *x", "line 1: found undefined alias 'x'"),
        ("a: 1\nb: \x00", "line 2: a character is not allowed"),
        ("a: 1\ntrue: 1", "line 2: a key must be text; write it in quotes"),
        ("1: 1", "line 1: a key must be text"),
        ("? [a]\n: 1", "line 1: a key must be text"),
        ("a: !!int x", "line 1: this is not a valid int"),
        ("a: !!bool x", "line 1: this is not a valid bool"),
        ("a: " + "9" * 5000, "line 1: this is not a valid int"),
        ('a: "\\ud800"', "line 1: this is not a valid str"),
        ("a: 1:30", "line 1: YAML reads numbers with a colon in base 60"),
        ("a: [-1:30:0.5]", "line 1: YAML reads numbers with a colon in base 60"),
        ("a: " + "1:" * 100_000 + "1", "line 1: YAML reads numbers with a colon in base 60"),
        (
            "max_seq_len: 0100",
            "line 1: YAML reads whole numbers that begin with 0 in base 8; write it in quotes",
        ),
        ("a: [-07]", "line 1: YAML reads whole numbers that begin with 0 in base 8"),
        ("a: +0_7", "line 1: YAML reads whole numbers that begin with 0 in base 8"),
        ("a: !!int 0100", "line 1: YAML reads whole numbers that begin with 0 in base 8"),
        ("a: 0b101", "line 1: YAML reads this as a number in base 2"),
        (
            "revision: 12e4567",
            "line 1: this is a number that is too large; if it is text, such as a revision",
        ),
        ("a: -1.5e+999", "line 1: this is a number that is too large"),
        ("a: " + "9" * 500, "line 1: this is a number that is too large"),
        ("a: .nan", "line 1: a number must be finite"),
        ("a: [-.inf]", "line 1: a number must be finite"),
        ("a: !!binary aGk=", "line 1: could not determine a constructor"),
        ("a: !!python/object/apply:os.getcwd []", "line 1: could not determine a constructor"),
        (bomb(20), f"line 1: there are more than {MAX_VALUES} values"),
        ("a:\n" + "- x\n" * 10 * MAX_VALUES, f"line 19999: there are more than {MAX_VALUES} values"),
        ("a: &a [*a]", f"line 1: it is nested deeper than {MAX_DEPTH} levels"),
        ("a: &a {<<: *a}", f"line 1: it is nested deeper than {MAX_DEPTH} levels"),
        ("a: " + "[" * 100_000, "it is nested too deeply"),
    ],
)
def test_refusals(text, reason):
    with pytest.raises(ConfigNotYaml) as caught:
        parse(text, "c.yaml")
    assert str(caught.value).startswith(f"E3002 ConfigNotYaml: The config c.yaml is not valid YAML: {reason}")


keys = st.text(max_size=80)  # YAML's own limit is 1024 characters, as they are written
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(keys, plain, max_size=4))
def test_json_is_read_unchanged(data):
    assert parse(json.dumps(data), "c").data == data


@given(st.text(alphabet="a1 :-[]{}&*!#|>'\"%@`,?<\n\t\\\x85.", max_size=60))
def test_any_text_is_read_or_refused(text):
    try:
        document = parse(text, "c")
    except CogTritonError:
        return
    assert all(isinstance(key, str) for key in document.data)
    assert not any(isinstance(value, float) and math.isnan(value) for value in document.data.values())
