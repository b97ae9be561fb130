import copy
import pickle
import re
from string import Formatter

import pytest

from shared import errors
from shared.errors import (
    REGISTRY,
    CogTritonError,
    EngineNotReady,
    FixedBy,
    InvalidArgument,
    State,
    WeightsNotFound,
    from_text,
)

KINDS = [REGISTRY[code] for code in sorted(REGISTRY)]


def made(kind: type[CogTritonError]) -> CogTritonError:
    """An error of this kind, with a number for every field of its templates."""
    fields = {field for _, field, _, _ in Formatter().parse(kind.message + kind.remedy) if field}
    return kind(**dict.fromkeys(fields, 7.5))


def test_text_is_code_name_message_and_remedy():
    error = InvalidArgument(argument="top_p", value=2, reason="it goes from 0 to 1")
    assert str(error) == (
        "E1104 InvalidArgument: top_p is 2, but it goes from 0 to 1. Send another value, or omit it."
    )
    assert error.details == {"argument": "top_p", "value": 2, "reason": "it goes from 0 to 1"}


def test_remedies_are_filled_in_too():
    error = errors.ParameterNotHonoured(engine="mock", parameter="seed", value=1)
    assert str(error).endswith("Omit seed, or use an engine that honours it.")


def test_text_is_one_line_whatever_the_details_hold():
    error = errors.CTranslate2Error(reason="first\nsecond\r\nthird")
    assert "CTranslate2 failed: first second third." in str(error)


def test_text_is_utf8_whatever_the_details_hold():
    assert r"There is no engine at x\udcff." in str(WeightsNotFound(source="x\udcff"))


def test_details_are_not_templates():
    assert "{0.__class__}" in str(errors.CTranslate2Error(reason="{0.__class__}"))


def test_two_classes_with_one_code_are_refused():
    with pytest.raises(TypeError, match="E2401 is both EngineNotReady and Other"):
        type("Other", (CogTritonError,), {"code": EngineNotReady.code})
    assert REGISTRY["E2401"] is EngineNotReady


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.code)
class TestEveryClass:
    def test_is_well_formed(self, kind):
        assert re.fullmatch(r"E[1-4]\d{3}", kind.code)
        assert kind.state in State
        assert kind.fixed_by in FixedBy
        for template in (kind.message, kind.remedy):
            assert template.endswith((".", "{reason}"))
            assert "\n" not in template

    def test_is_exported(self, kind):
        assert getattr(errors, kind.name()) is kind
        assert kind.name() in errors.__all__

    def test_is_found_again_in_a_text(self, kind):
        found = from_text(f"Prediction failed: RuntimeError: {made(kind)}\n")
        assert type(found) is kind
        assert str(found) == str(made(kind))

    def test_survives_pickling_and_copying(self, kind):
        error = made(kind)
        for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert type(other) is kind
            assert str(other) == str(error)


def test_the_details_of_another_process_are_read_out_of_its_text():
    details = {"engine": "mock", "parameter": "logit_bias", "value": "{1: 2.0} = 3."}
    assert from_text(f"it said: {errors.ParameterNotHonoured(**details)}\n").details == details


@pytest.mark.parametrize(
    "text",
    [
        "told otherwise.",
        # `parameter` would be two things.
        'The engine "a" cannot honour b=c. Leave d out, or use an engine that honours it.',
        f"{errors.ParameterNotHonoured(engine='a', parameter='b', value='c').text[27:]} And more.",
    ],
)
def test_a_text_that_is_not_its_template_filled_in_has_no_details(text):
    assert from_text(f"E1103 ParameterNotHonoured: {text}").details == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no code",
        "E1999 Unknown: x. y.",
        "E2401 AnotherName: x. y.",
        "E2401: x",
        "E5001 EngineNotReady: x",
        "XE2401 EngineNotReady: x",
    ],
)
def test_text_without_a_code_of_ours_gives_none(text):
    assert from_text(text) is None


def test_exports_are_sorted_and_complete():
    kinds = {kind.name() for kind in KINDS}
    helpers = {"REGISTRY", "UNEXPECTED", "CogTritonError", "FixedBy", "State", "from_text"}
    assert set(errors.__all__) == kinds | helpers
