"""Settings of the hub's library with which it cannot be imported: users see a code, and no traceback."""

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("HF_ENDPOINT", "https://hub.example.com:port", "that is not a valid address"),
        ("HF_ENDPOINT", "http://127.0.0.1:99999", "that is not a valid address"),
        ("HF_ENDPOINT", "https://[::1", "that is not a valid address"),
        ("HF_ENDPOINT", "//user:geheim@hub:abc", "that is not a valid address"),
        ("HF_HUB_DOWNLOAD_TIMEOUT", "abc", "it must be a whole number of seconds"),
        ("HF_HUB_ETAG_TIMEOUT", "1.5", "it must be a whole number of seconds"),
    ],
)
def test_each_is_named(tmp_path, variable, value, reason):
    config = tmp_path / "config.yaml"
    config.write_text("instantiate:\n  engine: mock\n  model: someone/tiny\n")
    shown = "***" if "geheim" in value else value
    told = f"E4002 SettingInvalid: The setting {variable} is '{shown}', but {reason}. "
    for command in (
        ["cli", "check", str(config)],
        ["cli", "build", str(config), "-o", "engine.tar"],
        ["cli.builder_server", "--port", "0"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", *command],
            env=os.environ | {variable: value},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 1
        assert told in done.stdout + done.stderr
        assert "Traceback" not in done.stdout + done.stderr


def test_the_doctor_looks_at_the_rest(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "cli", "doctor"],
        env=os.environ | {"HF_ENDPOINT": "https://[::1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "The setting HF_ENDPOINT is 'https://[::1', but that is not a valid address." in done.stdout
    assert "what is built" in done.stdout
