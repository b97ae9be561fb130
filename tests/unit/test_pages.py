"""How pages of the docs are read, and that all of them are written so."""

import re

import pytest

from tests.docs.pages import PageProblem, blocks, pages
from tests.docs.session import script
from tests.support.images import ROOT


def page(*lines):
    return blocks("page.md", "\n".join(lines))


def test_every_page_says_what_to_run():
    read = [
        (path, block)
        for path in pages(ROOT)
        for block in blocks(str(path.relative_to(ROOT)), path.read_text())
    ]
    assert {path.name for path, block in read if block.commands} >= {"README.md", "images.md"}


def test_commands_are_told_from_what_they_print():
    [block] = page("```console", "$ one \\", "  two", "printed", "$ three 'four", "five'", "```")
    assert block.commands == [(2, "one \\\n  two"), (5, "three 'four\nfive'")]


def test_a_mark_belongs_to_the_next_block_alone():
    first, second = page(
        "<!-- not run: needs a GPU -->", "", "```console", "$ a", "```", "", "```console", "$ b", "```"
    )
    assert (first.not_run, second.not_run) == ("needs a GPU", "")


def test_text_between_a_mark_and_a_block_parts_them():
    [block] = page("<!-- exit status 1 -->", "text", "```console", "$ a", "```")
    assert block.status == 0


@pytest.mark.parametrize(
    "lines",
    [
        ["    curl localhost:5000"],
        ["```sh", "make demo", "```"],
        ["```", "$ make demo", "```"],
        ["<!-- not run -->", "```console", "$ make demo", "```"],
        ["<!-- in the background -->", "```console", "$ make demo", "```"],
        ["```console", "$ make demo"],
    ],
)
def test_a_command_that_would_not_be_run_is_refused(lines):
    with pytest.raises(PageProblem, match=r"page\.md:\d"):
        page(*lines)


@pytest.mark.parametrize("lines", [["make demo"], ["$ make \\"]])
def test_a_console_block_without_a_whole_command_is_refused(lines):
    [block] = page("```console", *lines, "```")
    with pytest.raises(PageProblem):
        _ = block.commands


def test_files_are_written_and_marks_obeyed():
    text = script(
        page(
            *("```yaml", "# config.yaml", "engine: mock", "```"),
            *("<!-- exit status 3 -->", "```console", "$ false", "```"),
            *("<!-- not run: needs a GPU -->", "```console", "$ never", "```"),
            *("<!-- in the background until localhost:1/ready says yes -->", "```console", "$ serve", "```"),
        )
    )
    assert "cat > config.yaml" in text
    assert "[ $status = 3 ]" in text
    assert "never" not in text
    assert "{ serve\n} &\nuntil_says localhost:1/ready yes" in text


def test_the_picture_of_a_prompts_way_names_files_that_there_are():
    picture = (
        (ROOT / "docs/architecture/1-prompt.md")
        .read_text()
        .partition("    a prompt ")[2]
        .partition("\n\n")[0]
    )
    named = re.findall(r"runner/[\w./]+\.(?:py|c)", picture)
    assert len(named) > 10
    assert [path for path in named if not (ROOT / path).is_file()] == []
