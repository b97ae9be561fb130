"""Addresses of this machine that cannot be read: a coded error from everything that takes one."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.sources.config import read_config
from cli.inspect import manifest_of
from runner.weights import fetch_weights
from shared.errors import ConfigUnreachable, WeightsNotFound, WeightsUnreachable

Refusals = type[Exception] | tuple[type[Exception], ...]


def weights(source, directory):
    fetch_weights(source, directory / "cache", check=lambda _: None, max_bytes=1 << 30)


READERS: dict[str, tuple[Callable[[str, Path], object], Refusals]] = {
    "config": (lambda source, _: read_config(source), ConfigUnreachable),
    "weights": (weights, (WeightsNotFound, WeightsUnreachable)),
    "inspect": (lambda source, _: manifest_of(source), (WeightsNotFound, WeightsUnreachable)),
}
SOURCES = {
    "file:///etc/host%00name": "(no such file|no engine)",
    "/etc/host\0name": "(no such file|no engine)",
    "/etc/hostname/x": "(no such file|no engine)",
    "file://elsewhere/etc/hostname": "can only name files on this machine",
    "file://[::1": "not a valid URL",
    "s3://bucket/x": "s3: is not supported, unlike http:, https: and file:",
    "/proc/self/mem": "Input/output error",
    "/dev/zero": "it is not a file",
    "x" * 5000: "File name too long",
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: repr(source)[:30])
def test_what_cannot_be_read_is_a_coded_error(source, reader, tmp_path):
    read, error = READERS[reader]
    with pytest.raises(error, match=SOURCES[source]):
        read(source, tmp_path)
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize("reader", READERS)
def test_a_file_of_another_user_is_named_as_such(reader, tmp_path, monkeypatch):
    """root may read everything, so that the system's answer is played."""
    path = tmp_path / "secret"
    path.write_text("secret")

    def refused(*_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refused)
    read, error = READERS[reader]
    with pytest.raises(
        error, match=r"secret cannot be read: this user has no permission to read it\. Check the path "
    ):
        read(str(path), tmp_path)


@pytest.mark.parametrize("reader", ["weights", "inspect"])
def test_a_directory_of_another_user_is_named_as_such(reader, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    read, error = READERS[reader]
    with pytest.raises(error, match=r"engine .* cannot be read: this user has no permission to read it\. "):
        read(str(tmp_path), tmp_path)


@pytest.mark.parametrize("reader", READERS)
def test_a_pipe_is_not_waited_for(reader, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read, error = READERS[reader]
    with pytest.raises(error, match="it is not a file"):
        read(str(pipe), tmp_path)
