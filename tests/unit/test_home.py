"""What stands in for HOME."""

import os
import subprocess
import sys

_UNKNOWN = """
import pwd

def unknown(uid):
    raise KeyError(uid)

pwd.getpwuid = unknown
from runner.settings import Settings
print(Settings.from_environment({}).weights_cache)
print(Settings.from_environment({"WEIGHTS_CACHE": "/there"}).weights_cache)
"""


def test_a_user_without_home_whom_the_system_does_not_know_has_settings():
    environment = {name: value for name, value in os.environ.items() if name != "HOME"}
    done = subprocess.run(
        [sys.executable, "-c", _UNKNOWN], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["/.cache/cog-triton/weights", "/there"]
