"""Texts that are held to a structure, and structures that cannot be followed: none of them ends the engine.

`make test-vllm STRUCTURES=200` tries as many as that, instead of a few.
"""

from __future__ import annotations

import json
import os
import random
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runner.protocol.engine import STRUCTURES, FinishReason, Request, SamplingParameters, StructuredOutput
from runner.protocol.frames import CancelFrame
from runner.text.tokenizer import Tokenizer
from tests.vllm.conftest import run_script, serving, write_engine
from tests.vllm.model import VOCABULARY
from tests.vllm.structures import other_case, schema_case
from tests.vllm.test_engine import IDS, gathered

SCHEMAS = int(os.environ.get("STRUCTURES", "12"))
ROOM = 200


@pytest.fixture(scope="module")
def tokenizer(engine_directory):
    return Tokenizer.load(engine_directory / "tokenizer")


def held_to(asked, seed=0, max_tokens=ROOM, **parts) -> Request:
    parts.setdefault("sampling", SamplingParameters(top_p=1.0, temperature=1.0, seed=seed))
    return Request(next(IDS), [5, 6, 7], max_tokens, structured_output=asked, **parts)


def texts_of(driver, tokenizer, requests):
    """The text of each, which has ended by itself."""
    for request in requests:
        driver.submit(request)
    found = gathered(driver, {request.request_id for request in requests})
    texts = []
    for request in requests:
        own = found[request.request_id]
        assert own[-1].error is None, (own[-1].error, request.structured_output.text)
        tokens = [token for output in own for token in output.tokens]
        texts.append(tokenizer.decode(tokens))
        assert own[-1].finish_reason is FinishReason.END_ID, (texts[-1], request.structured_output.text)
    return texts


def wrong_ones(cases, texts, scratch):
    """The texts that have not their structure; schemas are checked by a library of vLLM's environment."""
    (scratch / "cases.json").write_text(
        json.dumps(
            [
                [str(case.asked.text), case.schema, case.pattern, text]
                for case, text in zip(cases, texts, strict=True)
            ]
        )
    )
    return run_script("tests/vllm/judge.py", scratch, str(scratch / "cases.json"))


def refusal(driver, asked, **parts):
    request = held_to(asked, max_tokens=3, **parts)
    driver.submit(request)
    return gathered(driver, {request.request_id})[request.request_id][-1].error


@pytest.mark.parametrize("made", [schema_case, other_case])
def test_texts_have_the_structure_that_they_are_held_to(engine, tokenizer, tmp_path, made):
    chance = random.Random(14)
    cases = [made(chance) for _ in range(SCHEMAS)]
    requests = [held_to(case.asked, seed) for seed, case in enumerate(cases)]
    texts = texts_of(engine[1], tokenizer, requests)
    assert not wrong_ones(cases, texts, tmp_path)


def test_the_end_ids_of_the_model_and_none_at_all_are_the_same_to_a_structure(engine, tokenizer):
    case = schema_case(random.Random(3))
    greedy = {"sampling": SamplingParameters()}
    requests = [held_to(case.asked, end_ids=ids, **greedy) for ids in (tokenizer.end_ids, frozenset())]
    one, other = texts_of(engine[1], tokenizer, requests)
    assert one == other != ""


def test_a_schema_in_the_words_of_its_library_is_followed_all_the_same(engine, tokenizer):
    schema = {"type": "array", "uniqueItems": True, "x-guidance": {"lenient": True}}
    error = refusal(engine[1], StructuredOutput("json_schema", json.dumps(schema)))
    assert error.code == "E1105"
    assert "uniqueItems" in str(error)


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        ("json_schema", '{"type": "foo"}', "foo"),
        ("json_schema", "[]", "object"),
        ("json_schema", "{", "it is not JSON: Expecting"),
        ("json_schema", "9" * 5000, "it has a number with too many digits"),
        ("json_schema", '{"$ref": "http://localhost/x"}', "http://localhost/x"),
        ("json_schema", '{"type":"array","items":' * 5000 + "{}" + "}" * 5000, "nested too deeply"),
        # Gigabytes to whoever makes a grammar of it: that ends one process, and no other.
        ("json_schema", '{"type":"array","items":{"type":"string"},"minItems":1000000000}', "too complex"),
        # A second of the core for each sequence, in which everybody's streams stop.
        ("regex", "(a{1000}){1000}", "too complex"),
        ("regex", "[a-z](a{1000}){1000}", "too complex"),
        ("regex", "(", "regex"),
        ("regex", "(?=a)b", "look-around"),
        ("ebnf_grammar", "root ::= foo", "foo"),
        ("ebnf_grammar", 'start: "a', "start"),
        ("choice", "[]", "list of texts"),
        ("choice", "[1]", "list of texts"),
    ],
)
def test_what_cannot_be_followed_is_refused(engine, log, kind, text, reason):
    error = refusal(engine[1], StructuredOutput(kind, text))
    assert error.code == "E1105"
    assert reason in str(error)
    assert "backtrace" not in log.read_text()


def test_the_core_bounds_what_a_step_costs_and_mixes_up_no_structures(tmp_path):
    """Only the first tokens are tried beforehand; on a machine with many cores, several threads compile."""
    found = run_script("tests/vllm/grammar_limits.py", tmp_path)
    assert found == {"before": False, "limited": True, "own": True}


@pytest.mark.parametrize(
    "pattern",
    [
        "((a|b|c|[d-z]{1,50}){1,50}x){1,50}",  # in the mask, which is then the end of the text: it looked complete
        "[a-z]{99}(a{1000}){1000}",  # when a token is taken
    ],
)
def test_a_text_that_cannot_be_held_to_its_structure_any_longer_is_an_error(engine, log, pattern):
    requests = [held_to(StructuredOutput("regex", pattern), seed) for seed in range(4)]
    for request in requests:
        engine[1].submit(request)
    found = gathered(engine[1], {request.request_id for request in requests})
    errors = [found[request.request_id][-1].error for request in requests]
    assert {error and error.code for error in errors} == {"E1105"}
    assert "becomes too complex" in str(errors[0])
    assert pattern not in log.read_text()


def write_one_that_reasons(directory):
    """A gpt-oss with weights of chance, and the demo's tokenizer with the tokens that part its answers."""
    tokens = ["<|end|>", "<|channel|>", "<|message|>"]
    config = {
        "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "torch_dtype": "bfloat16",
        "vocab_size": VOCABULARY + len(tokens), "hidden_size": 256, "intermediate_size": 256, "head_dim": 64,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "num_local_experts": 4, "num_experts_per_tok": 2,
        "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 128,
        "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
    }  # fmt: skip
    arguments = {"enforce_eager": True, "kv_cache_memory_bytes": 64 << 20, "load_format": "dummy"}
    write_engine(directory, engine_args=arguments)
    (directory / "engine/model.safetensors").unlink()
    (directory / "engine/config.json").write_text(json.dumps(config))
    place = directory / "tokenizer/tokenizer.json"
    tokenizer = json.loads(place.read_bytes())
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False) | {"special": True}
    tokenizer["added_tokens"] += [
        {"id": number, "content": token} | flags for number, token in enumerate(tokens, VOCABULARY)
    ]
    place.write_text(json.dumps(tokenizer))
    return directory


def test_what_a_model_writes_before_its_answer_is_held_to_the_structure_too(tmp_path, tokenizer):
    directory = write_one_that_reasons(tmp_path / "engine")
    with serving(directory, tmp_path / "log") as (_, driver):
        (text,) = texts_of(driver, tokenizer, [held_to(StructuredOutput("regex", "(yes|no){1,9}!"))])
    assert re.fullmatch("(yes|no){1,9}!", text)


def test_what_would_leave_nothing_to_choose_from_is_refused(engine):
    asked = StructuredOutput("regex", "a")
    for parts in ({"sampling": SamplingParameters(min_tokens=2)}, {"bad_words": [[5]]}):
        assert refusal(engine[1], asked, **parts).code == "E1104"


def test_one_that_is_cancelled_while_its_structure_is_tried_ends(engine):
    driver = engine[1]
    asked = StructuredOutput("json_schema", json.dumps({"const": "a structure that nobody sent before"}))
    request = held_to(asked)
    driver.submit(request)
    driver.send(CancelFrame(request.request_id))
    (last,) = (own[-1] for own in gathered(driver, {request.request_id}).values())
    assert last.error is None
    assert last.finish_reason in (FinishReason.CANCELLED, FinishReason.END_ID)


WORDS = (
    "{1,9}", "{99999}", "\\d", "[0-9]", "(?i)", "root ::= ", "start: ", "x: ", "x", "<a>", "//", "@a", "::=", "\0",
    "%json ", "%regex ", "%import common.INT\n", '{"type":"string"}', '"$ref":"#"', "é",
)  # fmt: skip
KEYWORDS = (
    "type", "properties", "items", "anyOf", "oneOf", "allOf", "not", "$ref", "$defs", "enum", "const", "pattern",
    "format", "minItems", "maxLength", "multipleOf", "minimum", "required", "if", "x-guidance",
)  # fmt: skip
fragments = st.sampled_from([*'()[]{}*+?|\\"^$.#&~-=: \n', *WORDS])
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.sampled_from(["string", "#", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYWORDS), inner, max_size=4),
    max_leaves=8,
)


@given(
    asked=st.builds(
        StructuredOutput,
        st.sampled_from(STRUCTURES),
        st.lists(fragments, min_size=1, max_size=12).map("".join),
    )
    | st.builds(StructuredOutput, st.just("json_schema"), json_values.map(json.dumps))
)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_structure_ends_the_engine(engine, asked):
    process, driver = engine
    error = refusal(driver, asked)
    assert error is None or error.code == "E1105", error
    assert process.poll() is None
