"""What a runner imports before it is READY: seconds of its start go by the packages that come along."""

from __future__ import annotations

import subprocess
import sys

import pytest

START = ["runner.lifecycle.__main__", "cli.preparation", "runner.front.__main__"]


@pytest.mark.parametrize("module", [*START, "runner.triton.client", "runner.engines.process"])
def test_packages_that_are_not_needed_are_not_imported(module):
    source = f"import {module}, sys; print(*sorted({{'numpy', 'rich', 'typer'}} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
