import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.engines.tensorrt_llm.call import Call, Given
from builder.engines.tensorrt_llm.tables import table


def arguments(**values):
    given = {name: Given(value, ()) for name, value in values.items()}
    call = Call("build", "trtllm-build", None, table("trtllm-build"), (), "engine", given)
    return call.command().arguments


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, ("--a",)),
        (True, ("--a",)),
        (False, ()),
        (8, ("--a", "8")),
        (0, ("--a", "0")),
        (0.5, ("--a", "0.5")),
        (1e-05, ("--a", "1e-05")),
        ("x y", ("--a", "x y")),
        ("", ("--a", "")),
        (("x", 1, 0.5), ("--a", "x", "1", "0.5")),
    ],
)
def test_values(value, words):
    assert arguments(a=value) == words


def test_the_order_is_that_of_the_config():
    assert arguments(b=1, a=2, c=None) == ("--b", "1", "--a", "2", "--c")


@given(st.dictionaries(st.text(min_size=1), st.integers() | st.text() | st.floats(allow_nan=False)))
def test_every_value_is_one_word(values):
    words = arguments(**values)
    assert words == tuple(word for name, value in values.items() for word in (f"--{name}", str(value)))
