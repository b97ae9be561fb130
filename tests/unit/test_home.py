"""What stands in for HOME."""

import os
import subprocess
import sys

_UNKNOWN = """
import pwd

def unknown(uid):
    raise KeyError(uid)

pwd.getpwuid = unknown
"""

_SETTINGS = """
from runner.settings import Settings
print(Settings.from_environment({}).weights_cache)
print(Settings.from_environment({"WEIGHTS_CACHE": "/there"}).weights_cache)
"""


_HUB = """
import sys
from cli import main

def app():
    from huggingface_hub import constants
    print(constants.HF_HUB_CACHE)

main.app = app
sys.argv = ["cog-triton"]
main.main()
"""


def printed(script: str) -> str:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in {"HOME", "HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME"}
    }
    command = [sys.executable, "-c", _UNKNOWN + script]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_a_user_without_home_whom_the_system_does_not_know_has_settings():
    assert printed(_SETTINGS).split() == ["/.cache/cog-triton/weights", "/there"]


def test_the_command_line_makes_no_folder_named_after_a_home_that_is_not_there():
    """The hub's models went to `~/.cache` below the working directory, or could not be fetched at all."""
    assert printed(_HUB) == "/.cache/huggingface/hub\n"
