"""LoRA adapters by name: in OpenAI's API, in Cog's, and as the operator loads and removes them; salts of keys."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import httpx2
import pytest

from runner.prediction.adapters import Adapters
from runner.protocol.engine import MAX_TOKENS, Declaration, Limits
from runner.protocol.feed import EngineState
from shared.errors import (
    AdapterUnknown,
    ApiKeyInvalid,
    ModelNotServed,
    PathUnknown,
    RequestInvalid,
    SettingInvalid,
    VllmAdapterInvalid,
    VllmAdaptersInUse,
    from_text,
)
from tests.support.front import serving
from tests.support.mock_engine import HANG
from tests.support.waiting import until

CAN = Declaration("mock", Limits(MAX_TOKENS, MAX_TOKENS - 1), frozenset({"lora", "cache_salt"}))
OPERATOR = {"authorization": "Bearer secret-of-the-operator"}


@pytest.fixture
def folder(tmp_path):
    for name in ("sql", "team/law"):
        (tmp_path / "adapters" / name).mkdir(parents=True)
        (tmp_path / "adapters" / name / "adapter_config.json").write_text("{}")
        (tmp_path / "adapters" / name / "adapter_model.safetensors").touch()
    (tmp_path / "adapters/half").mkdir()
    (tmp_path / "adapters/half/adapter_config.json").write_text("{}")  # its weights are missing
    return tmp_path / "adapters"


@pytest.fixture
def run(engine_directory, folder):
    def run(test, declaration=CAN, **environment):
        settings = {"LORA_FOLDER": str(folder), "OPERATOR_KEY": "secret-of-the-operator", **environment}

        async def go():
            async with (
                serving(engine_directory, declaration=declaration, **settings) as front,
                httpx2.AsyncClient(base_url=front.url) as http,
            ):
                await test(front, http)

        asyncio.run(asyncio.wait_for(go(), 30))

    return run


def asked(front):
    return front.client.requests[-1]


async def complete(http, status=200, headers=None, **body):
    answer = await http.post(
        "/v1/completions", json={"prompt": [1, 2], "max_tokens": 1, **body}, headers=headers
    )
    assert answer.status_code == status, answer.text
    return answer.json()


def test_an_adapter_in_the_folder_is_a_model(run):
    async def test(front, http):
        listed = (await http.get("/v1/models")).json()["data"]
        assert [(one["id"], one.get("parent")) for one in listed] == [("model", None), ("sql", "model")]
        assert (await http.get("/v1/models/sql")).json()["id"] == "sql"
        assert (await complete(http, model="sql"))["model"] == "sql"
        assert asked(front).lora == "sql"
        assert (await complete(http, model="model"))["model"] == "model"
        assert asked(front).lora is None
        assert (await complete(http, 404, model="law"))["error"]["message"].startswith(ModelNotServed.code)

    run(test)


def test_an_input_of_cogs_api_names_one(run, answered):
    async def test(front, http):
        body = {"input": {"prompt": "1 2", "max_tokens": 1, "lora": "sql"}}
        assert (await http.post("/predictions", json=body)).json()["status"] == "succeeded"
        assert asked(front).lora == "sql"
        body["input"]["lora"] = "law"
        answer = await http.post("/predictions", json=body)
        answered(answer.json()["error"], AdapterUnknown(name="law"))

    run(test)


@pytest.mark.parametrize(
    "error",
    [
        VllmAdapterInvalid(name="sql", reason="adapter_config.json is not a JSON object"),
        VllmAdaptersInUse(reason="as many as fit (2) are in use by other requests"),
    ],
)
def test_one_that_the_engine_cannot_use_fails_its_request(run, answered, error):
    async def test(front, http):
        body = {"model": "sql", "prompt": [HANG], "max_tokens": 1}
        asking = asyncio.create_task(http.post("/v1/completions", json=body))
        await until(lambda: front.client.in_flight)
        front.client.die(error)
        answered((await asking).json()["error"]["message"], error)

    run(test)


def test_the_operator_loads_and_removes_adapters(run, folder):
    async def post(http, path, body, key=OPERATOR):
        return await http.post(f"/v1/{path}_lora_adapter", json=body, headers=key)

    async def test(front, http):
        law = {"lora_name": "law", "lora_path": str(folder / "team/law")}
        for key in (None, {"authorization": "Bearer another"}):
            refused = await post(http, "load", law, key)
            assert (refused.status_code, ApiKeyInvalid.code in refused.text) == (401, True)
            assert "Send the operator's key (OPERATOR_KEY) as" in refused.text
        answer = await post(http, "load", law)
        assert answer.json() == {"lora_name": "law", "lora_path": "team/law"}
        assert (asked(front).lora, asked(front).max_tokens) == ("team/law", 1)  # the engine has tried it
        await complete(http, model="law")
        assert asked(front).lora == "team/law"
        taken = await post(http, "load", {"lora_name": "law", "lora_path": "sql"})
        assert RequestInvalid.code in taken.text
        taken = await post(http, "load", {"lora_name": "model", "lora_path": "sql"})
        assert RequestInvalid.code in taken.text
        assert (await post(http, "unload", {"lora_name": "law"})).status_code == 200
        await complete(http, 404, model="law")
        assert (await post(http, "unload", {"lora_name": "law"})).status_code == 404

    run(test)


@pytest.mark.parametrize("kind", [AdapterUnknown, partial(VllmAdapterInvalid, reason="it is empty")])
def test_what_the_engine_says_of_a_folder_is_told_of_the_name(run, answered, kind):
    law = {"lora_name": "law", "lora_path": "team/law"}

    async def test(front, http):
        def fail(request, generate=front.client.generate):
            generation = generate(request)
            front.client.die(from_text(str(kind(name=request.lora))))
            front.client.state = EngineState.READY
            return generation

        await http.post("/v1/load_lora_adapter", json=law, headers=OPERATOR)
        front.client.generate = fail
        told = [
            await http.post("/v1/load_lora_adapter", json=law, headers=OPERATOR),
            await http.post("/v1/completions", json={"model": "law", "prompt": [1]}),
            await http.post("/predictions", json={"input": {"prompt": "1", "lora": "law"}}),
        ]
        errors = [answer.json()["error"] for answer in told]
        for error in errors:
            answered(error if isinstance(error, str) else error["message"], kind(name="law"))

    run(test)


@pytest.mark.parametrize(
    "path", ["..", "/etc", ".", "team", "none", "half", "sql/../../x", "link", "a\0b", "x" * 3000]
)
def test_nothing_outside_the_folder_can_be_loaded(run, folder, tmp_path, path):
    (tmp_path / "adapter_config.json").write_text("{}")
    (tmp_path / "adapter_model.safetensors").touch()
    (folder / "link").symlink_to(tmp_path)

    async def test(front, http):
        body = {"lora_name": "x", "lora_path": path}
        answer = await http.post("/v1/load_lora_adapter", json=body, headers=OPERATOR)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "lora_path"
        assert str(tmp_path) not in answer.text

    run(test)


def test_what_adapters_need_is_told_to_those_who_have_no_folder(run):
    async def test(front, http):
        body = {"lora_name": "x", "lora_path": "x"}
        answer = await http.post("/v1/load_lora_adapter", json=body, headers=OPERATOR)
        assert "LORA_FOLDER" in answer.json()["error"]["message"]

    run(test, LORA_FOLDER="")


def test_a_folder_that_cannot_be_read_is_a_wrong_setting(run, folder, monkeypatch):
    def refused(path, entries=Path.iterdir):
        if path == folder:
            raise PermissionError(13, "Permission denied", str(path))
        return entries(path)

    async def test(front, http):
        raise AssertionError("it serves")

    monkeypatch.setattr(Path, "iterdir", refused)  # root may read everything
    with pytest.raises(SettingInvalid, match=r"LORA_FOLDER is .* this user has no permission to read it"):
        run(test)


def test_a_folder_that_is_not_there_is_a_wrong_setting(run, folder):
    async def test(front, http):
        raise AssertionError("it serves")

    with pytest.raises(SettingInvalid, match=r"LORA_FOLDER is .*/no-such', but there is no such folder"):
        run(test, LORA_FOLDER=str(folder / "no-such"))


def test_without_a_key_of_the_operator_there_are_no_such_routes(run):
    async def test(front, http):
        answer = await http.post("/v1/load_lora_adapter", json={})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, PathUnknown.code)

    run(test, OPERATOR_KEY="")


def test_an_engine_that_has_no_adapters_lists_none(run):
    async def test(front, http):
        assert len((await http.get("/v1/models")).json()["data"]) == 1

    run(test, Declaration("mock", CAN.limits, frozenset()))


def test_each_key_has_a_salt_of_its_own(run):
    async def test(front, http):
        async def salt(key, **body):
            await complete(http, headers={"authorization": f"Bearer {key}"}, **body)
            return asked(front).cache_salt

        one, other = await salt("key-one"), await salt("key-two")
        assert one != other
        assert "one" not in one
        assert await salt("key-one") == one
        assert (
            len({one, other, await salt("key-one", cache_salt="x"), await salt("key-two", cache_salt="x")})
            == 4
        )

    run(test, API_KEYS="one key-one, two key-two")


def test_a_salt_is_only_made_where_keys_are_kept_apart(run):
    async def test(front, http):
        await complete(http, headers={"authorization": "Bearer key-one"})
        assert asked(front).cache_salt is None

    run(test, API_KEYS="one key-one", SHARE_PREFIX_CACHE="true")
    run(test, Declaration("mock", CAN.limits, frozenset()), API_KEYS="one key-one")


def test_a_salt_that_the_engine_cannot_honour_is_refused_as_it_was_sent(run):
    async def test(front, http):
        await complete(http, headers={"authorization": "Bearer key-one"}, cache_salt="mine")
        assert asked(front).cache_salt == "mine"

    run(test, Declaration("mock", CAN.limits, frozenset()), API_KEYS="one key-one")


def test_without_a_folder_there_is_nothing():
    assert Adapters(None).names == []
    with pytest.raises(RequestInvalid):
        Adapters(None).found("x")
