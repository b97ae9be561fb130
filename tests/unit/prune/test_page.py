"""docs/pruning-libraries.md, as far as it can be told without the libraries."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from shared.layout import PROJECT_ROOT
from tests.gpu.page import COMMAND, head, head_of


def test_the_page_says_when_it_was_measured_and_of_what():
    page = (PROJECT_ROOT / "docs/pruning-libraries.md").read_text()
    (found,) = re.findall(r"Measured on (.+), of vLLM (\S+) and torch (\S+), with", page)
    assert page.startswith(head(*found))
    assert page.endswith(COMMAND)


def test_a_new_page_has_the_versions_of_its_folder(tmp_path):
    for name, version in (("vllm", "0.26.0"), ("torch", "2.11.0")):
        folder = tmp_path / f"{name}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    assert head_of(tmp_path) == head(f"{datetime.now(UTC):%d %B %Y}", "0.26.0", "2.11.0")
