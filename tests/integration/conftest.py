"""Real servers for the integration tests: each leaves nothing running, which is checked."""

from __future__ import annotations

import os
import socket
import uuid
from contextlib import contextmanager

import pytest

from builder.pipeline import build
from demo.cog_server import CogServer
from shared.artifact import extract_archive
from shared.cog.server import free_port
from shared.errors import CogTritonError
from tests.support.processes import MARK, wait_gone
from tests.support.triton import triton

READY_SECONDS = 120
COGS_WORDS = "Prediction failed: Generator iteration error: "  # before an error, in Cog's own server
MOCK_RATE = 100


def counted(tokens: int) -> str:
    """The text of that many tokens of the mock."""
    return " ".join(str(number % 10_000) for number in range(tokens))


def unpacked(archive, directory):
    """The engine directory of an archive, in `directory`."""
    with archive.open("rb") as stream:
        extract_archive(stream, directory / "engine", check=lambda _: None, max_bytes=1 << 30)
    return directory / "engine"


@contextmanager
def cog_server(
    package: str,
    log,
    *,
    concurrency: int | None = None,
    ready_seconds: float = READY_SECONDS,
    **environment: str,
):
    """A Cog server that was set up; after it no process of it may be left."""
    mark = uuid.uuid4().hex
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        server = CogServer(
            package,
            concurrency=concurrency,
            environment={MARK: mark, "ENGINE_ENVIRONMENT": MARK, **environment},
            output=output,
        )
    finally:
        os.close(output)
    server.mark = mark  # type: ignore[attr-defined] # for the tests alone
    try:
        server.wait_ready(ready_seconds)
        yield server
    finally:
        server.stop()
        left = wait_gone(mark)
    assert left == {}


@pytest.fixture(scope="session")
def mock_archive(tmp_path_factory):
    """`mock_archive(key=value, ...)`: the engine.tar of a mock with these settings."""

    def make(**settings: float):
        directory = tmp_path_factory.mktemp("mock")
        lines = [f"{key}: {value}" for key, value in {"engine": "mock", **settings}.items()]
        (directory / "config.yaml").write_text("\n".join(lines))
        build(str(directory / "config.yaml"), directory / "engine.tar")
        return directory / "engine.tar"

    return make


@pytest.fixture
def silence():
    """The URL of an engine that is never sent."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/engine.tar"


@pytest.fixture(scope="module")
def mock_triton(mock_archive, tmp_path_factory):
    """A Triton with both models of a mock of MOCK_RATE tokens/s, over gRPC and HTTP (`http_port`), as a runner
    serves them.
    """
    directory = tmp_path_factory.mktemp("triton")
    engine = unpacked(mock_archive(tokens_per_second=MOCK_RATE), directory)
    with triton(directory, engine, http_port=free_port(), gated=True) as running:
        yield running


@pytest.fixture
def assert_failed(answered):
    """`assert_failed(result, error)`: this is how a prediction ends that fails with `error`."""

    def check(result: dict, error: CogTritonError) -> None:
        assert result["status"] == "failed"
        answered(result["error"].removeprefix(COGS_WORDS), error)
        said_by = result["metrics"] if result["error"].startswith(COGS_WORDS) else result
        assert said_by["error_code"] == error.code

    return check


@pytest.fixture
def assert_fails(assert_failed, answered):
    """`assert_fails(client, inputs, text, error)`: a prediction fails with `error`, after this text."""

    def check(client, inputs, text: str, error: CogTritonError) -> None:
        try:
            events = list(client.events(inputs))
        except CogTritonError as refused:
            assert text == ""
            answered(str(refused), error)
            return
        assert "".join(event.data["chunk"] for event in events if event.kind == "output") == text
        assert_failed(events[-1].data, error)

    return check
