"""The builder's server, without builds."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from cli.builder_server import __main__ as module
from runner.front.cog.schema import Asked
from runner.settings import Settings
from shared.errors import InputInvalid, Overloaded


@pytest.fixture
def registered(monkeypatch):
    """What is masked in the log from then on."""
    secrets = []
    monkeypatch.setattr(module, "register_secret", secrets.append)
    return secrets


@pytest.fixture
def server(tmp_path):
    return module.BuilderServer(Settings.from_environment({}), tmp_path)


async def start(server, token):
    request = SimpleNamespace(header=lambda _: b"host", scope={"scheme": "http"}, take_place=lambda: None)
    inputs = {"config": "data:,engine: mock", "hf_token": token}
    return await server._start(Asked(None, inputs, None, frozenset(), None), "one", request)


def test_the_token_of_a_request_that_is_refused_is_not_kept(server, registered):
    async def two():
        await start(server, "hf_first")
        with pytest.raises(Overloaded):
            await start(server, "hf_second")

    asyncio.run(two())
    assert registered == ["hf_first"]


@pytest.mark.parametrize("token", ["hf_" + "x" * 200_000, "hf_" + "\N{MONEY BAG}" * 3000, "hf_\0x"])
def test_what_cannot_be_a_token_takes_no_place(server, registered, token):
    async def two():
        with pytest.raises(InputInvalid, match=r"input\.hf_token: it is not a token"):
            await start(server, token)
        await start(server, "hf_right")

    asyncio.run(two())
    assert registered == ["hf_right"]
