"""How far along a long step is, as a bar on a terminal."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from shared.progress import StepProgress


class BarProgress:
    """A bar for each step, drawn by rich."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def step(self, name: str) -> Iterator[StepProgress]:
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self._console) as bar:
            task = bar.add_task(name, total=None)

            def show(done: int, total: int | None = None) -> None:
                bar.update(task, completed=done, total=total)

            yield show
