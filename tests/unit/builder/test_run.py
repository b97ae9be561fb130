"""The builder as `cog predict` and `cog serve` call it."""

from pathlib import Path

import pytest

from builder import run
from builder.run import Builder


@pytest.mark.parametrize(
    ("settings", "directory"),
    [({}, "/src"), ({"BUILDER_OUTPUT_DIR": ""}, "/src"), ({"BUILDER_OUTPUT_DIR": "/out"}, "/out")],
)
def test_where_the_engine_is_written(monkeypatch, settings, directory):
    """A variable that is set to nothing is as if it were not set: the current folder is nobody's choice."""
    written = []
    monkeypatch.delenv("BUILDER_OUTPUT_DIR", raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(run, "build", lambda _config, output, **_: written.append(Path(output)))
    Builder().run("data:,engine: mock", None)
    assert written == [Path(directory) / "engine.tar"]
