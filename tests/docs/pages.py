"""The commands on a page of the docs, and what the page says about running them.

Every command for a reader to type is in a block of its own kind:

    ```console
    $ make demo
    ...what it prints
    ```

A line that starts with `$ ` is a command; it goes on in the next line after a `\\`, or while a quote is open. The
others are output, which nothing compares. tests/docs/test_pages.py runs the commands of a page from top to bottom in
one shell, in a fresh copy of the repository, and each has to succeed. A comment above a block says otherwise:

    <!-- not run: needs a GPU -->                                        a reason is required
    <!-- in the background until localhost:5000/health-check says READY -->
    <!-- exit status 1 -->                                               of the block's last command

A block of another kind whose first line is `# NAME` (a file name with an extension) is written to that file first.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FENCE = re.compile(r"^( *)```+(\w*)\s*$")
_COMMENT = re.compile(r"^\s*<!-- *(.*?) *-->\s*$")
_NOT_RUN = re.compile(r"not run: (\S.*)")
_BACKGROUND = re.compile(r"in the background until (\S+) says (\S.*)")
_STATUS = re.compile(r"exit status (\d+)")
_FILE = re.compile(r"(?:#|//) ([\w./-]+\.\w+)$")
# What commands of these docs start with; anything else in an indented block is a listing.
_TYPED = re.compile(
    r"(\$ |(sudo|curl|docker|podman|nix|make|python3?|pip|git|skopeo|kubectl|cog|cog-triton|export|cd)\s|(\.venv|ci|\.)/\S)"
)


class PageProblem(Exception):
    """A block that is not written as the docs' blocks are; says where, and how to fix it."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block; `commands` is empty for those that are not of the kind `console`."""

    page: str
    line: int  # of its first line
    kind: str
    lines: list[str]
    not_run: str = ""
    background: tuple[str, str] | None = None  # an address, and the text that it answers with in the end
    status: int = 0

    @property
    def commands(self) -> list[tuple[int, str]]:
        """Each command with its line. Raises PageProblem for one without its end."""
        found: list[tuple[int, str]] = []
        if self.kind != "console":
            return found
        going_on = False
        for number, line in enumerate(self.lines, self.line):
            if going_on:
                found[-1] = (found[-1][0], f"{found[-1][1]}\n{line}")
            elif line.startswith("$ "):
                found.append((number, line.removeprefix("$ ")))
            else:
                continue
            going_on = _is_open(found[-1][1])
        if going_on or not found:
            raise PageProblem(
                f"{self.page}:{self.line}: a console block needs a line `$ command` with its end"
            )
        return found

    @property
    def file(self) -> str:
        """The file that the block shows."""
        name = _FILE.match(self.lines[0]) if self.lines and self.kind != "console" else None
        return name[1] if name else ""


def blocks(page: str, text: str) -> list[Block]:
    """The fenced blocks of a page. Raises PageProblem for a command anywhere else."""
    found: list[Block] = []
    opened: tuple[int, str, str] | None = None
    said: list[str] = []
    lines: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        fence = _FENCE.match(line)
        if opened is None and fence:
            opened, lines = (number, fence[1], fence[2]), []
        elif opened is not None and fence and not fence[2]:
            found.append(_block(page, opened[0] + 1, opened[2], lines, said))
            opened, said = None, []
        elif opened is not None:
            lines.append(line.removeprefix(opened[1]))
        elif comment := _COMMENT.match(line):
            said.append(comment[1])
        elif line.startswith("    ") and _TYPED.match(line.strip()):
            raise PageProblem(
                f"{page}:{number}: a command stands in a block ```console, after `$ `: {line.strip()}"
            )
        elif line.strip():
            said = []
    if opened:
        raise PageProblem(f"{page}:{opened[0]}: this block has no end")
    return found


def pages(root: Path) -> Iterator[Path]:
    """The pages whose commands are run."""
    yield from sorted([*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("deploy/**/*.md")])


def _block(page: str, line: int, kind: str, lines: list[str], said: list[str]) -> Block:
    if kind != "console" and (
        kind in {"sh", "bash", "shell"} or any(text.startswith("$ ") for text in lines)
    ):
        raise PageProblem(f"{page}:{line}: what a reader types stands in a block ```console, after `$ `")
    reasons = [match[1] for text in said if (match := _NOT_RUN.fullmatch(text))]
    until = [(match[1], match[2]) for text in said if (match := _BACKGROUND.fullmatch(text))]
    status = [int(match[1]) for text in said if (match := _STATUS.fullmatch(text))]
    odd = [text for text in said if re.match("not run|in the background|exit status", text)]
    if len(odd) != len(reasons) + len(until) + len(status):
        raise PageProblem(f"{page}:{line}: see tests/docs/pages.py for how this is written: {odd}")
    return Block(
        page,
        line,
        kind,
        lines,
        not_run=reasons[0] if reasons else "",
        background=until[0] if until else None,
        status=status[0] if status else 0,
    )


def _is_open(command: str) -> bool:
    """Whether the shell would ask for another line."""
    if command.endswith("\\"):
        return True
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return True
    return False
