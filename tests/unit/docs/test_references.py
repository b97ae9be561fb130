"""What the pages refer to exists: other pages and their headings, files, variables. (Commands are typed by tests/docs,
metrics are compared by tests/unit/front/test_metric_names.py.)
"""

from __future__ import annotations

import re
import subprocess
from functools import cache

import pytest

from shared.layout import PROJECT_ROOT
from tests.docs.pages import blocks

# As they are in other repositories.
ELSEWHERE = {
    "examples/quantization/": "TensorRT-LLM",
    "examples/models/core/": "TensorRT-LLM",
    "docs/source/": "TensorRT-LLM",
}
# Variables that no source of ours names: who reads them.
READ_BY_OTHERS = {
    "ALL_PROXY": "urllib3 and httpx2",
    "ENABLE_GATEWAY_API_INFERENCE_EXTENSION": "Istio",
    "NCCL_IB_DISABLE": "NCCL",
    "NCCL_IB_HCA": "NCCL",
    "RAY_AUTH_MODE": "Ray",
    "REPLICATE_API_TOKEN": "Replicate's clients",
    "REPORT_CUSTOM_METRICS": "Triton's vLLM backend",
}

LINK = re.compile(r"\]\(([^()\s]+)\)")
VARIABLE = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")
BLOCK = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)


@cache
def tracked() -> list[str]:
    command = ["git", "ls-files"]
    said = subprocess.run(command, cwd=PROJECT_ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in said.splitlines() if (PROJECT_ROOT / name).is_file()]


PAGES = [name for name in tracked() if name.endswith(".md")]


def text_of(page: str) -> str:
    return (PROJECT_ROOT / page).read_text()


@cache
def headings(page: str) -> set[str]:
    """The anchors that a page has, as GitHub makes them."""
    lines = re.findall(r"^#+ +(.+?) *$", BLOCK.sub("", text_of(page)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


def broken_links(page: str, text: str) -> list[str]:
    broken = []
    for target in LINK.findall(BLOCK.sub("", text)):
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        place = (PROJECT_ROOT / page).parent / path if path else PROJECT_ROOT / page
        if not place.exists() or (
            anchor and anchor not in headings(str(place.resolve().relative_to(PROJECT_ROOT)))
        ):
            broken.append(target)
    return broken


@cache
def path_pattern() -> re.Pattern[str]:
    folders = sorted({name.split("/")[0] for name in tracked() if "/" in name})
    return re.compile(rf"(?<![\w./:@%$~-])((?:{'|'.join(map(re.escape, folders))})/[\w./<>*-]*[\w>*])")


def missing_paths(text: str) -> list[str]:
    """Of the paths that begin with a folder of ours; `<name>`, NAME and `*` stand for any."""
    missing = []
    for path in path_pattern().findall(text):
        wanted = re.sub(r"<\w+>|\b[A-Z]+\b(?=\.)", "*", path)
        if not path.startswith(tuple(ELSEWHERE)) and not any(PROJECT_ROOT.glob(wanted)):
            missing.append(path)
    return missing


@cache
def words_of_the_source() -> set[str]:
    names = [
        name for name in tracked() if not name.endswith(".md") and not name.startswith(("docs/", "tests/"))
    ]
    return {
        word
        for name in names
        for word in re.findall(r"\w+", (PROJECT_ROOT / name).read_text(errors="replace"))
    }


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page):
    assert broken_links(page, text_of(page)) == []


@pytest.mark.parametrize("page", PAGES)
def test_every_path_is_there(page):
    written = {block.file for block in blocks(page, text_of(page))}  # by the page itself
    assert set(missing_paths(text_of(page))) - written == set()


@pytest.mark.parametrize("page", PAGES)
def test_every_variable_is_read_by_somebody(page):
    text = text_of(page)
    of_the_readers_shell = set(re.findall(r"\$\{?(\w+)", text))
    named = set(VARIABLE.findall(text)) - of_the_readers_shell
    assert named - words_of_the_source() - READ_BY_OTHERS.keys() == set()


def test_the_figures_of_the_readme_are_those_that_were_measured():
    section = text_of("README.md").partition("\n## How fast it is\n")[2].partition("\n## ")[0]
    figures = set(re.findall(r"\b\d+,\d{3}\b", section)) - {"1,024"}
    measured = re.findall(r"\b\d+,\d{3}\b", text_of("docs/performance-gpu.md"))
    assert len(figures) > 5
    assert figures - set(measured) == set()


def test_what_is_broken_is_seen():
    assert broken_links("README.md", "[a](docs/nowhere.md) [b](#no-such-part) [c](LICENSE)") == [
        "docs/nowhere.md",
        "#no-such-part",
    ]
    assert missing_paths(
        "`runner/nothing.py`, runner/run.py, runner/engines/<kind>.py, tests/x/NAME.json"
    ) == [
        "runner/nothing.py",
        "tests/x/NAME.json",
    ]
    assert set(VARIABLE.findall("`NO_SUCH_VARIABLE` and E2401")) - words_of_the_source() == {
        "NO_SUCH_VARIABLE"
    }
