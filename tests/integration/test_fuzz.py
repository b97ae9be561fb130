"""Whatever is sent over HTTP, the answer is a success or a coded user error."""

from __future__ import annotations

import json
import os

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.errors import FixedBy, from_text
from tests.integration.conftest import cog_server
from tests.support.processes import marked
from tools.docs import cog_schema

EXAMPLES = 20_000 if os.environ.get("HYPOTHESIS_PROFILE") == "fuzz" else 2_000
REFUSALS = {400, 413, 422}
INPUTS = json.loads(cog_schema.rendered("runner"))["components"]["schemas"]["Input"]["properties"]
FRAGMENTS = [
    "{prompt}", "{system_prompt}", "{{", "}}", "{", "}", "{0}", "{prompt.__class__}", "{prompt!r:>99}", "{{ 7*7 }}",
    "{% for i in range(9) %}", "\0", "\x1b[2J", "\r\n\r\n", "\u202e", "\ufeff", "\U0010ffff", "\ud800", "é", "🦊", "\ufffd",
    "%s%n", "$(id)", "'; --", "../..", "</s>", "<unk>", "1 2 3", ",", "[", '["a,b"]', '"role"', "null", "event: output\n\n",
]  # fmt: skip

texts = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=20), max_size=8).map("".join)
long_texts = st.tuples(st.sampled_from([*FRAGMENTS, "a", "a ", "\n"]), st.integers(0, 20)).map(
    lambda piece_and_size: (piece_and_size[0] * 2 ** piece_and_size[1])[: 1 << 20]
)
numbers = (
    st.integers()
    | st.sampled_from([-(2**63) - 1, -1, 0, 1, 2**31, 2**32, 2**63, 2**64, 10**30])
    | st.floats()
    | st.sampled_from([1e-60, 1e39, 5e-324, -0.0, 0.95, 1.0, 5.0])
)
scalars = st.none() | st.booleans() | numbers | texts
anything = scalars | st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system", ""]) | texts, "content": anything}
    ),
    max_size=4,
).map(json.dumps)
# What each input could plausibly be; so that not every example ends at the first refusal.
LIKELY = {
    "string": texts | long_texts | messages,
    "integer": st.integers(-2, 5000) | numbers,
    "number": st.floats(-1, 6) | numbers,
    "boolean": st.booleans(),
}


def value_of(name: str) -> st.SearchStrategy:
    likely = LIKELY[INPUTS[name]["type"]]
    return st.one_of(likely, likely, likely, anything)


predictions = st.fixed_dictionaries(
    {},
    optional={name: value_of(name) for name in INPUTS} | {"unknown": anything},
).map(lambda inputs: json.dumps({"input": {"prompt": "x", **inputs}}).encode())
cut = st.tuples(predictions, st.integers(0, 200)).map(lambda body_and_end: body_and_end[0][: body_and_end[1]])
bodies = st.one_of(
    predictions,
    predictions,
    predictions,
    predictions,
    cut,
    st.binary(max_size=64),
    anything.map(json.dumps).map(str.encode),
)


@pytest.fixture(scope="module")
def server(mock_archive, tmp_path_factory):
    directory = tmp_path_factory.mktemp("fuzz")
    environment = {
        "COG_WEIGHTS": str(mock_archive(tokens_per_second=1e6)),
        "WEIGHTS_CACHE": str(directory / "weights"),
    }
    with cog_server("runner", directory / "log", concurrency=8, **environment) as server:
        yield server


@pytest.fixture(scope="module")
def http(server):
    with httpx2.Client(base_url=server.url, timeout=60) as client:
        processes = marked(server.mark)
        yield client
    assert marked(server.mark) == processes, "a process of the runner has died"
    assert server.health()["status"] == "READY"


def problem(answer: httpx2.Response) -> str | None:
    """What is wrong with an answer."""
    if answer.status_code not in {httpx2.codes.OK, *REFUSALS}:
        return f"status {answer.status_code}"
    result = answer.json()
    if result.get("status") == "succeeded":
        return None
    error = from_text(result["error"])
    if error is None:
        return f"no code: {result['error']}"
    return None if error.fixed_by is FixedBy.USER else str(error)


@pytest.mark.timeout(3600)
@settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
@given(body=bodies)
def test_any_body(http, body):
    answer = http.post("/predictions", content=body, headers={"Content-Type": "application/json"})
    assert problem(answer) is None
