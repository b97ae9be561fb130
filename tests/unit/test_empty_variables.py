"""An empty variable counts as unset, as docs/environment.md says: for the libraries that read some, too."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os
import cli.main
from huggingface_hub import constants
print(constants.ENDPOINT, constants.HF_HUB_CACHE, os.environ.get("HF_TOKEN"), os.environ.get("SSL_CERT_FILE"))
"""


def told(**variables: str) -> str:
    own = ("HF_", "SSL_CERT_FILE")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.run(command, env=plain | variables, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("variable", ["HF_ENDPOINT", "HF_HOME", "HF_TOKEN", "SSL_CERT_FILE"])
def test_an_empty_variable_of_a_library_changes_nothing(variable):
    assert told(**{variable: "set"}) != told()
    assert told(**{variable: ""}) == told()


GENERATE = """
import os
from cli.generate import generate
from shared.errors import WeightsNotFound
try:
    generate("/nowhere", {"prompt": "a"}, as_json=False)
except WeightsNotFound:
    print(os.environ["LOG_LEVEL"])
"""


@pytest.mark.parametrize(("given", "taken"), [("", "critical"), ("error", "error")])
def test_generate_is_as_silent_with_an_empty_log_level_as_without_one(given, taken):
    command = [sys.executable, "-c", GENERATE]
    done = subprocess.run(
        command, env=os.environ | {"LOG_LEVEL": given}, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{taken}\n"
