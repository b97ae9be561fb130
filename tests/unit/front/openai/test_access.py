"""Who may ask: API keys and their limits, TLS."""

import asyncio

import pytest

from runner.front.server import tls_files
from runner.settings import Settings
from shared.errors import KeyLimitReached, SettingInvalid
from tests.support.files import CERTIFICATE
from tests.support.waiting import until
from tests.unit.front.openai.conftest import error_of

SMALL_KEY = CERTIFICATE.with_name("small_key.pem")
WEAK_HASH = CERTIFICATE.with_name("weak_hash.pem")


def test_a_key_is_needed_where_keys_are_set(run):
    async def test(front, http):
        sent = {"prompt": "1"}
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            answer = await http.post("/v1/completions", json=sent, headers=headers)
            error = await error_of(answer, 401)
            assert error["code"] == "invalid_api_key"
            assert error["message"].startswith("E1304 ApiKeyInvalid: ")
        for path in ("/v1/models", "/v1/models/model"):
            assert (await http.get(path)).status_code == 401
        assert (await http.post("/tokenize", json=sent)).status_code == 401
        right = {"Authorization": "Bearer sk-1"}
        assert (await http.post("/v1/completions", json=sent, headers=right)).status_code == 200
        assert (await http.get("/version")).status_code == 200

    run(test, API_KEYS="sk-1")


def test_cogs_api_and_the_metrics_need_a_key_where_settings_say_so(run):
    right = {"Authorization": "Bearer sk-1"}
    asked = {"input": {"prompt": "1", "max_tokens": 1}}

    async def open_to_all(front, http):
        assert (await http.post("/predictions", json=asked)).status_code == 200
        assert (await http.get("/metrics")).status_code == 200

    async def with_keys(front, http):
        answer = await http.post("/predictions", json=asked)
        assert answer.status_code == 401
        assert answer.json()["detail"].startswith("E1304 ApiKeyInvalid: No API key was sent.")
        for path in ("/predictions/x", "/metrics"):
            assert (await http.get(path)).status_code == 401
        for path in ("/health-check", "/health", "/health/live", "/version", "/openapi.json"):
            assert (await http.get(path)).status_code == 200
        assert (await http.post("/predictions", json=asked, headers=right)).status_code == 200
        assert (await http.get("/metrics", headers=right)).status_code == 200

    run(open_to_all, API_KEYS="sk-1")
    run(with_keys, API_KEYS="sk-1", COG_API_NEEDS_KEY="true", METRICS_NEED_KEY="true")


def test_a_prediction_belongs_to_the_key_that_began_it(run):
    """Another key was shown its prompt and text, and could cancel it."""

    async def test(front, http):
        alice, bob = ({"Authorization": f"Bearer sk-{one}"} for one in (1, 2))
        asked = {"input": {"prompt": "1", "max_tokens": 2, "seed": 1}}
        later = {"Prefer": "respond-async"}
        assert (await http.put("/predictions/job", json=asked, headers=alice | later)).status_code == 202
        assert (await http.get("/predictions/job", headers=bob)).status_code == 404
        assert (await http.post("/predictions/job/cancel", headers=bob)).status_code == 404
        asked["input"]["prompt"] = "2"
        assert (await http.put("/predictions/job", json=asked, headers=bob | later)).status_code == 202
        for key, prompt in ((alice, "1"), (bob, "2")):
            answer = await http.get("/predictions/job", headers=key)
            assert answer.json()["input"]["prompt"] == prompt

    run(test, API_KEYS="alice sk-1,bob sk-2", COG_API_NEEDS_KEY="true")


def test_a_prediction_stays_with_its_key_when_the_key_before_it_is_removed(run, tmp_path, monkeypatch):
    """The key behind the removed one was given that one's predictions, and could neither see nor cancel its own."""
    monkeypatch.setattr("runner.front.keys._SECONDS_BETWEEN_LOOKS", 0)
    file = tmp_path / "keys"
    file.write_text("sk-1\nsk-2\n")

    async def test(front, http):
        removed, kept = ({"Authorization": f"Bearer sk-{one}"} for one in (1, 2))
        asked = {"input": {"prompt": "1", "max_tokens": 2}}
        for name, key in (("removed", removed), ("kept", kept)):
            answer = await http.put(
                f"/predictions/{name}", json=asked, headers=key | {"Prefer": "respond-async"}
            )
            assert answer.status_code == 202
        (tmp_path / "new").write_text("sk-2\n")
        (tmp_path / "new").rename(file)
        statuses = [
            (await http.get(f"/predictions/{name}", headers=kept)).status_code for name in ("removed", "kept")
        ]
        assert statuses == [404, 200]

    run(test, API_KEYS_FILE=str(file), COG_API_NEEDS_KEY="true")


def test_a_key_that_has_all_it_may_is_told_to_try_again(run, answered):
    async def test(front, http):
        http.headers["Authorization"] = "Bearer sk-1"
        hangs = asyncio.create_task(http.post("/v1/completions", json={"prompt": [9]}))
        await until(lambda: front.client.in_flight == 1)
        answer = await http.post("/v1/completions", json={"prompt": "1", "stream": True})
        error = await error_of(answer, 429)
        assert (error["type"], error["code"]) == ("rate_limit_error", "E1305")
        answered(error["message"], KeyLimitReached(what="predictions", count=2, limit=1))
        assert int(answer.headers["retry-after"]) > 0
        http.headers["Authorization"] = "Bearer sk-2"
        assert (await http.post("/v1/completions", json={"prompt": "1"})).status_code == 200
        answer = await http.post("/v1/completions", json={"prompt": "1", "max_tokens": 100})
        assert (await error_of(answer, 400))["code"] == "E1308"
        assert "retry-after" not in answer.headers
        answer = await http.post("/v1/completions", json={"prompt": "1", "n": 2, "stream": True})
        assert (await error_of(answer, 400))["code"] == "E1308"
        assert front.client.in_flight == 1  # the one that hangs
        hangs.cancel()

    run(test, API_KEYS="sk-1,sk-2", KEY_MAX_REQUESTS="1", KEY_MAX_TOKENS="100")


def test_https(run, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))

    async def test(front, http):
        assert front.url.startswith("https://")
        assert (await http.get("/v1/models")).status_code == 200

    run(test, TLS_CERTIFICATE=str(CERTIFICATE), TLS_KEY=str(CERTIFICATE))


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"TLS_CERTIFICATE": str(CERTIFICATE)}, "TLS_KEY is not set, but TLS_CERTIFICATE needs it. "),
        ({"TLS_KEY": str(CERTIFICATE)}, "TLS_CERTIFICATE is not set, but TLS_KEY needs it. "),
        (
            {"TLS_CERTIFICATE": "nowhere.pem", "TLS_KEY": str(CERTIFICATE)},
            "TLS_CERTIFICATE is 'nowhere.pem', but there is no such file.",
        ),
        (
            {"TLS_CERTIFICATE": str(CERTIFICATE), "TLS_KEY": "/dev/zero"},
            "TLS_KEY is '/dev/zero', but it is not a file.",
        ),
        (
            {"TLS_CERTIFICATE": str(CERTIFICATE), "TLS_KEY": __file__},
            f"but it cannot be used with TLS_KEY={__file__}: they are not a certificate and its private key in PEM.",
        ),
        (
            {"TLS_CERTIFICATE": str(SMALL_KEY), "TLS_KEY": str(SMALL_KEY)},
            f"but it cannot be used with TLS_KEY={SMALL_KEY}: the certificate's key is too small.",
        ),
        (
            {"TLS_CERTIFICATE": str(WEAK_HASH), "TLS_KEY": str(CERTIFICATE)},
            f"but it cannot be used with TLS_KEY={CERTIFICATE}: the hash of a signature in the certificate's chain is too weak.",
        ),
        (
            {"TLS_CERTIFICATE": str(CERTIFICATE), "TLS_KEY": str(SMALL_KEY)},
            f"but it cannot be used with TLS_KEY={SMALL_KEY}: the key is not that of the certificate.",
        ),
    ],
)
def test_certificates_that_cannot_be_used(files, told):
    with pytest.raises(SettingInvalid) as refused:
        tls_files(Settings.from_environment(files))
    assert told in str(refused.value)
