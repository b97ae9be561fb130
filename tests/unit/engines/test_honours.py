"""A sampling parameter that an engine does not follow is refused, unless it asks for nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import fields

import pytest

from runner.engines.base import SamplingParameters
from runner.engines.honours import SEEDED, check_honoured
from runner.engines.process import ENGINES
from shared.errors import ParameterNotHonoured
from shared.layout import PROJECT_ROOT, Layout

ASKING = {
    "top_k": 50,
    "top_p": 0.9,
    "temperature": 0.7,
    "min_tokens": 5,
    "seed": 0,
    "length_penalty": 1.5,
    "repetition_penalty": 1.1,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
}
NEUTRAL = [
    ("top_k", 0),
    ("top_p", 1.0),
    ("top_p", 0.0),
    ("temperature", 1.0),
    ("min_tokens", 0),
    ("length_penalty", 1.0),
    ("length_penalty", 0.0),
    ("repetition_penalty", 1.0),
    ("presence_penalty", 0.0),
    ("frequency_penalty", 0.0),
]


def test_every_parameter_is_known_here():
    assert list(ASKING) == [field.name for field in fields(SamplingParameters)]


@pytest.mark.parametrize(("name", "value"), ASKING.items())
def test_one_that_is_not_followed_is_refused(name, value):
    with pytest.raises(ParameterNotHonoured, match=f'"mock" cannot honour {name}={value}'):
        check_honoured("mock", frozenset(), SamplingParameters(**{name: value}))


@pytest.mark.parametrize(("name", "value"), ASKING.items())
def test_one_that_is_followed_passes(name, value):
    check_honoured("mock", frozenset({name}), SamplingParameters(**{name: value}))


@pytest.mark.parametrize(("name", "value"), NEUTRAL)
def test_one_that_asks_for_nothing_passes(name, value):
    check_honoured("mock", frozenset(), SamplingParameters(**{name: value}))


HONOURS = """
import json, sys
from importlib import import_module
from runner.engines.process import ENGINES

module, name = ENGINES[sys.argv[1]]
print(json.dumps(sorted(getattr(import_module(module), name).honours)))
"""


def declared(kind: str) -> set[str]:
    """What the engine's own class says, asked where it can be imported."""
    # TensorRT-LLM itself is imported when an engine is loaded, not before.
    python = sys.executable if kind == "tensorrt_llm" else Layout.current().engine_python(kind)
    environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT)}
    asked = subprocess.run(
        [python, "-c", HONOURS, kind], env=environment, capture_output=True, text=True, check=True
    )
    return set(json.loads(asked.stdout))


def test_the_engines_with_seeds_are_those_that_say_so():
    assert {kind for kind in ENGINES if "seed" in declared(kind)} == SEEDED


def test_the_mock_makes_no_choice_that_a_parameter_could_change():
    assert declared("mock") == set(ASKING)
