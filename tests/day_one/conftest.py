"""Day one of somebody who comes from the original cog-triton: what they type, line by line, and what must
come of it.

The files are in the order in which one would type them, and so are the tests in a file: each goes on in the terminal
where the one before left off (`user` lasts for a file), so run a whole file:

    .venv/bin/python -m pytest tests/day_one/test_10_serve.py

To add a line, say it as the user does, and then what it must give:

    def test_a_prompt_is_answered(user):
        answer = user.types("curl localhost:$PORT/predictions -d '{...}'")
        assert answer.json["status"] == "succeeded"

`user` (tests/support/terminal.py) sits in a fresh clone whose environments are those of this one; `cog-triton` and
`python` are on the PATH; PORT is free; the hub is one on loopback, `user_hub`, to which a test gives the models that
it needs. There are stand-ins for nothing but GPUs and addresses that are out of reach. A line that needs a container
is marked `containers`: these run as root with `make test-images` (fixtures `docker` and `registry_host`); all others run
with `make test` and have two minutes together.
"""

from __future__ import annotations

import pytest

from tests.support.hub import Hub, Repository
from tests.support.images import ROOT, clone_repository, docker_and_nix, registry
from tests.support.terminal import Terminal

DEMO = "HuggingFaceTB/SmolLM2-135M-Instruct"
PREDICT = "curl -s localhost:$PORT/predictions -H 'Content-Type: application/json' -d "


def serve_mock(user, config: str) -> None:
    """What a user types to have a mock engine served."""
    user.write("mock.yaml", config)
    user.types("cog-triton build mock.yaml -o mock.tar")
    user.starts("cog-triton serve mock.tar --port $PORT", "localhost:$PORT/health-check", says="READY")


@pytest.fixture(scope="module")
def user_hub():
    """The Hugging Face hub, as far as the user reaches it; DEMO is the demo's small model."""
    with Hub() as hub:
        hub.repositories[DEMO] = Repository(ROOT / "demo/model")
        yield hub


@pytest.fixture(scope="module")
def user(tmp_path_factory, user_hub):
    """The person at the terminal, in the folder of their clone."""
    home = tmp_path_factory.mktemp("home")
    clone = clone_repository(home / "cog-triton")
    variables = {"HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache"), "HF_ENDPOINT": user_hub.url}
    with Terminal(clone, variables) as terminal:
        yield terminal


@pytest.fixture(scope="module")
def docker(user, tmp_path_factory):
    """From here on the user has `docker` and `nix` (see tests/support/images.py)."""
    with docker_and_nix(tmp_path_factory.mktemp("docker")) as programs:
        user.variables["PATH"] = f"{programs}:{user.variables['PATH']}"
        yield


@pytest.fixture(scope="module")
def registry_host(tmp_path_factory):
    """The host and port of an empty registry."""
    with registry(tmp_path_factory.mktemp("registry")) as host:
        yield host
