import io

from rich.console import Console

from shared.progress import PlainProgress, SilentProgress
from shared.progress_bar import BarProgress


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def plain(seconds):
    """What a step shows that reports its progress at each of `seconds` (since its start)."""
    stream, clock = io.StringIO(), Clock()
    with PlainProgress(stream, clock).step("download") as show:
        for clock.now in seconds:
            show(int(clock.now) * 1_000_000, 10_000_000)
    return stream.getvalue().splitlines()


def test_short_steps_are_silent():
    assert plain([0.5, 1.9]) == []


def test_a_line_every_two_seconds_at_most():
    assert plain([1, 2, 3, 3.9, 4, 5]) == [
        "download: 20% of 10.0 MB",
        "download: 40% of 10.0 MB",
        "download: done in 5 s",
    ]


def test_unknown_total():
    stream, clock = io.StringIO(), Clock()
    with PlainProgress(stream, clock).step("download") as show:
        clock.now = 3.0
        show(1_500_000)
    assert stream.getvalue().startswith("download: 1.5 MB\n")


def test_bar_on_a_terminal():
    stream = io.StringIO()
    with BarProgress(Console(file=stream, force_terminal=True, width=80)).step("package") as show:
        show(5_000_000, 10_000_000)
    assert "package" in stream.getvalue()
    assert "5.0/10.0 MB" in stream.getvalue()


def test_silence():
    with SilentProgress().step("package") as show:
        show(1, 2)
