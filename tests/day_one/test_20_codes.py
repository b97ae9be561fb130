"""Codes in what a prediction answers: programs written for the original look for them."""

from __future__ import annotations

import pytest

from shared.cog.server import free_port
from tests.day_one.conftest import PREDICT, serve_mock


@pytest.fixture(scope="module", autouse=True)
def served(user):
    serve_mock(user, "engine: mock\n")


TEMPLATES = {
    """'{"input": {"prompt": "hi", "prompt_template": "no place for it"}}'""": "E1003 BadPromptTemplate: ",
    """'{"input": {"prompt": "hi", "prompt_template": "{prompt} {"}}'""": "E1004 PromptTemplateError: ",
    """'{"input": {"prompt": "hi", "prompt_template": "{prompt} {other}"}}'""": "E1004 PromptTemplateError: ",
}


@pytest.mark.parametrize("body", TEMPLATES)
def test_a_bad_template_has_the_code_that_it_always_had(user, body):
    answer = user.types(PREDICT + body).json
    assert answer["status"] == "failed"
    assert answer["error"].startswith(TEMPLATES[body])
    assert answer["error_code"] == TEMPLATES[body][:5]


def test_so_has_what_is_refused(user):
    answer = user.types(PREDICT + """'{"input": {"prompt": "hi", "max_tokens": 0}}'""").json
    assert answer["error"].startswith("E1322 InputInvalid: ")
    assert answer["error_code"] == "E1322"


@pytest.mark.parametrize("body", TEMPLATES)
def test_cogs_own_server_tells_it_in_its_own_way(user, body, cogs_own_server):
    answer = user.types(PREDICT.replace("$PORT", "$COG_PORT") + body).json
    assert answer["error"].startswith(f"Prediction failed: Generator iteration error: {TEMPLATES[body]}")
    assert answer["metrics"]["error_code"] == TEMPLATES[body][:5]


@pytest.fixture(scope="module")
def cogs_own_server(user):
    user.variables["COG_PORT"] = str(free_port())
    address = "localhost:$COG_PORT/health-check"
    user.starts("SERVER=cog cog-triton serve mock.tar --port $COG_PORT", address, says="READY")
