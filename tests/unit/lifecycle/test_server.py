"""Which HTTP server the settings ask for."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"SERVER": "nginx"}, "E4002 SettingInvalid: The setting SERVER is 'nginx', but it must be front or cog."),
        ({"SERVER": "cog", "TLS_CERTIFICATE": "/c.pem"}, "E4002 SettingInvalid: The setting TLS_CERTIFICATE is '/c.pem', "),
        ({"SERVER": "cog", "TLS_KEY": "/k.pem"}, "E4002 SettingInvalid: The setting TLS_KEY is '/k.pem', "),
    ],
)  # fmt: skip
def test_what_cannot_be_served_ends_the_start(settings, told):
    command = [sys.executable, "-m", "runner.lifecycle", "--port", "1"]
    done = subprocess.run(
        command, check=False, env=os.environ | settings, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr[: len(told)]) == (1, told)
