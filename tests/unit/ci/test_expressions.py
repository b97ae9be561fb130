"""GitHub's expressions, as the workflows use them."""

import pytest

from ci.workflow.expressions import ExpressionProblem, evaluate, fill, functions
from tests.support.images import ROOT

CONTEXTS = {
    "github": {"event_name": "push", "ref": "refs/tags/v1"},
    "vars": {},
    "needs": {"a": {"result": "success"}, "b": {"result": "skipped"}},
    "list": ["one", "two"],
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("github.event_name == 'PUSH'", True),
        ("vars.REGISTRY != ''", False),
        ("vars.REGISTRY || 'none'", "none"),
        ("github.event_name == 'push' && vars.REGISTRY == ''", True),
        ("!startsWith(github.ref, 'refs/tags/')", False),
        ("join(needs.*.result, ' ')", "success skipped"),
        ("fromJSON('[1, 2]')", [1, 2]),
        ("contains(list, 'two') && !contains('abc', 'd')", True),
        ("needs['a'].result", "success"),
        ("'it''s'", "it's"),
        ("(false || true) && 3", 3),
        ("github.no.such.thing", None),
    ],
)
def test_expressions_have_githubs_values(text, value):
    assert evaluate(text, CONTEXTS, functions(ROOT)) == value


def test_text_is_filled():
    assert fill("v-${{ github.ref }}-${{ vars.NONE }}", CONTEXTS, {}) == "v-refs/tags/v1-"


@pytest.mark.parametrize("text", ["unknown.name", "unknown()", "'a' 'b'", "github.", "a $ b", "contains('a'"])
def test_what_github_would_refuse_is_refused(text):
    with pytest.raises((ExpressionProblem, IndexError)):
        evaluate(text, CONTEXTS, functions(ROOT))
