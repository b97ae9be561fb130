"""The OpenAPI documents that Cog reads are those of the predictors."""

import json

import cog
import pytest

from tools.docs import cog_schema


def test_the_runner_streams_and_takes_the_inputs_of_the_original_with_their_ranges():
    document = json.loads(cog_schema.rendered("runner"))
    assert document["paths"]["/predictions"]["post"]["x-cog-streaming"] is True
    inputs = document["components"]["schemas"]["Input"]
    assert "required" not in inputs
    limits = {
        name: tuple(entry.get(key) for key in ("type", "default", "minimum", "maximum"))
        for name, entry in inputs["properties"].items()
    }
    assert limits == {
        "prompt": ("string", None, None, None),
        "system_prompt": ("string", None, None, None),
        "messages": ("string", None, None, None),
        "max_tokens": ("integer", 512, 1, None),
        "min_tokens": ("integer", None, -1, None),
        "temperature": ("number", 0.7, 0, 5),
        "top_p": ("number", 0.95, 0, 1),
        "top_k": ("integer", 0, -1, None),
        "stop_sequences": ("string", None, None, None),
        "length_penalty": ("number", 1.0, 0, 5),
        "presence_penalty": ("number", 0.0, None, None),
        "seed": ("integer", None, None, None),
        "structured_output": ("string", None, None, None),
        "lora": ("string", None, None, None),
        "prompt_template": ("string", None, None, None),
        "log_performance_metrics": ("boolean", False, None, None),
        "max_new_tokens": ("integer", None, 1, None),
        "min_new_tokens": ("integer", None, -1, None),
    }


def test_a_secret_is_marked_as_one():
    token = json.loads(cog_schema.rendered("builder"))["components"]["schemas"]["Input"]["properties"][
        "hf_token"
    ]
    assert token["x-cog-secret"] is True
    assert token["nullable"] is True


@pytest.mark.parametrize("limit", [{"choices": ["odd", "even"]}, {"max_length": 9}, {"regex": "[a-z]*"}])
def test_what_no_server_would_check_is_refused(limit):
    def run(parity: str | None = cog.Input(default=None, **limit)) -> cog.Path: ...

    with pytest.raises(TypeError, match=f"parity: no server checks `{next(iter(limit))}`"):
        cog_schema.openapi_schema(run, streaming=True)
