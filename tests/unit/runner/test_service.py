"""What of a prediction is told to its sender, and what to the log."""

from __future__ import annotations

import pytest
import structlog

from builder.engines.mock import counting_tokenizer
from runner.cog.admission import Admission
from runner.cog.prediction import Prediction
from runner.prediction.inputs import Defaults, Inputs
from runner.prediction.preparation import Preparation
from runner.service import Service
from runner.settings import Settings
from runner.text.tokenizer import Tokenizer
from shared.errors import BadPromptTemplate, GenericError

SECRET = "what only the user knows"


@pytest.fixture
def predict():
    """`predict(**inputs)` runs a prediction of a service that has no engine; it is not admitted twice."""

    def run(**inputs: str) -> list[str]:
        settings = Settings.from_environment({})
        tokenizer = Tokenizer(counting_tokenizer())
        service = object.__new__(Service)
        service._settings = settings
        service._metrics = None
        service._admission = Admission(1)
        service._request_ids = iter([1])  # type: ignore[assignment] # one is enough
        service._preparation = Preparation(tokenizer, Defaults.of(settings, {}, tokenizer))
        try:
            return list(service.stream(Inputs(**inputs), Prediction(lambda *_: None, "p1")))
        finally:
            with service._admission.enter():
                pass

    return run


def test_an_error_without_a_code_gets_one_and_its_text_stays_in_the_log(predict):
    with structlog.testing.capture_logs() as lines, pytest.raises(GenericError) as failed:
        predict(prompt=SECRET)  # there is no client to send it with
    assert "AttributeError" not in str(failed.value)
    (line,) = lines
    assert (line["event"], line["prediction_id"], line["exc_info"]) == ("prediction failed", "p1", True)


def test_what_a_user_sent_is_not_logged(predict):
    with structlog.testing.capture_logs() as lines, pytest.raises(BadPromptTemplate):
        predict(prompt="x", prompt_template=f"{{{SECRET}}}")
    assert SECRET not in str(lines)
    assert lines[0]["error"] == "E1003"
