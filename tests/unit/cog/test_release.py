"""Which release of Cog's server is known."""

from __future__ import annotations

from importlib import metadata

from runner.cog.release import RELEASE, check_release
from shared.logs import configure_logging


def test_the_release_that_is_known_is_the_one_that_is_locked(capsys):
    configure_logging()
    check_release()
    assert metadata.version("coglet") == RELEASE
    assert capsys.readouterr().err == ""


def test_another_release_is_told_at_set_up(monkeypatch, capsys):
    monkeypatch.setattr(metadata, "version", lambda _name: "0.99.0")
    configure_logging()
    check_release()
    assert "cancellations may not reach predictions" in capsys.readouterr().err
