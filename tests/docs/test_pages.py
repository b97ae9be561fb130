"""The docs show no command that does not work: see tests/docs/pages.py for how a page says what to run."""

import os
import subprocess
import sys

import pytest

from tests.docs.pages import blocks, pages
from tests.support.images import ROOT, clone_repository

# Ends whatever the page has started, also when it is killed.
ISOLATED = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
AS_A_USER = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
WITH_COMMANDS = [
    str(page.relative_to(ROOT))
    for page in pages(ROOT)
    if any(block.commands and not block.not_run for block in blocks(page.name, page.read_text()))
]


@pytest.fixture
def clone(tmp_path):
    return clone_repository(tmp_path / "cog-triton")


@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_every_command_of_a_page_works(page, clone):
    command = [*ISOLATED, *AS_A_USER, sys.executable, "-m", "tests.docs.session", page]
    done = subprocess.run(
        command,
        cwd=clone,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-6000:]
