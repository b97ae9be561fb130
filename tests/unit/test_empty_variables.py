"""An empty variable counts as unset, as docs/environment.md says: for the hub's library, too."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os
import cli.main
from huggingface_hub import constants
print(constants.ENDPOINT, constants.HF_HUB_CACHE, os.environ.get("HF_TOKEN"))
"""


def told(**variables: str) -> str:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.run(command, env=plain | variables, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("variable", ["HF_ENDPOINT", "HF_HOME", "HF_TOKEN"])
def test_an_empty_variable_of_the_hub_changes_nothing(variable):
    assert told(**{variable: "set"}) != told()
    assert told(**{variable: ""}) == told()
