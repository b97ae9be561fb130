"""What browsers may send, and read, because a web page says so."""

from __future__ import annotations

import socket

import httpx2
import pytest

from runner.front.browsers import Browsers
from runner.settings import Settings
from shared.errors import CrossSiteRequest, HostNotAllowed, SettingInvalid
from tests.support.front import running

APP = "https://app.example.com"
PREFLIGHT = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "content-type,x-stainless-os",
}
BODY = {"input": {"prompt": "1", "max_tokens": 1}}


@pytest.fixture(scope="module")
def front(engine_directory):
    """One without any, on loopback."""
    with running(engine_directory, names_checked=True) as server:
        yield server


@pytest.fixture(scope="module")
def strict(engine_directory):
    """One with every setting for browsers."""
    given = {"ALLOWED_HOSTS": "chat.example.com, .internal", "CORS_ORIGINS": f"{APP}/, tauri://localhost"}
    with running(engine_directory, names_checked=True, ALLOW_SHUTDOWN="true", **given) as front:
        yield front


def settings(**environment):
    return Settings.from_environment(environment)


def get(front, host, path="/openapi.json"):
    return httpx2.get(f"{front.url}{path}", headers={"host": host})


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:5000",
        "localhost.",
        "llm.localhost:80",
        "127.0.0.1",
        "127.8.7.6:5000",
        "[::1]",
        "[::1]:5000",
        "[::ffff:127.0.0.1]:5000",
    ],
)
def test_on_loopback_its_names_are_answered(front, host):
    assert get(front, host).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:5000",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "notlocalhost",
        "10.0.0.1",
        "[2001:db8::1]",
        "127.0.0.256",
        "",
        "[",
        "user@localhost",
    ],
)
@pytest.mark.parametrize("path", ["/openapi.json", "/metrics", "/v1/models", "/health-check", "/nowhere"])
def test_on_loopback_other_names_are_not_answered(front, host, path):
    """A page whose name leads here a moment later read everything."""
    assert get(front, host, path).status_code == 421


def test_the_refusal_names_the_setting(front, answered):
    answer = get(front, "evil.example:5000")
    answered(answer.json()["error"], HostNotAllowed(host="evil.example:5000"))
    assert "ALLOWED_HOSTS" in answer.json()["error"]
    assert get(front, "evil.example", "/v1/models").json()["error"]["code"] == "E1346"


@pytest.mark.parametrize("path", ["/health/live", "/health/ready"])
def test_health_is_told_for_any_name(front, path):
    assert get(front, "10.1.2.3:5000", path).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("chat.example.com", 200),
        ("Chat.Example.com:443", 200),
        ("www.chat.example.com", 421),
        ("internal", 200),
        ("a.b.internal", 200),
        ("ainternal", 421),
        ("localhost", 200),
        ("evil.example", 421),
    ],
)
def test_names_that_the_operator_allows_are_answered(strict, host, status):
    assert get(strict, host).status_code == status


def test_with_keys_every_name_is_answered(engine_directory):
    with running(
        engine_directory, names_checked=True, API_KEYS="secret", ALLOWED_HOSTS="chat.example.com"
    ) as front:
        assert get(front, "evil.example").status_code == 200
        assert get(front, "evil.example", "/v1/models").status_code == 401


@pytest.mark.parametrize(
    ("address", "allowed_hosts", "checked"),
    [
        ("0.0.0.0", "", False),
        ("0.0.0.0", "chat.example.com", True),
        ("0.0.0.0", "*", False),
        ("127.0.0.1", "*", False),
        ("127.0.0.2", "", True),
    ],
)
def test_names_are_checked_on_loopback_and_where_the_operator_says(address, allowed_hosts, checked):
    with socket.create_server((address, 0)) as listener:
        browsers = Browsers.of(settings(ALLOWED_HOSTS=allowed_hosts), listener, keys=False)
    assert (browsers._hosts is not None) == checked


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "origin": "http://localhost:3000"},
        {"sec-fetch-site": "cross-site", "origin": "null"},
        {"origin": "https://evil.example"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "https://evil.example", "authorization": "Basic eDp5"},
    ],
)
@pytest.mark.parametrize(
    "path", ["/predictions", "/predictions/x/cancel", "/v1/completions", "/shutdown", "/x"]
)
def test_pages_of_other_origins_send_nothing(strict, headers, path):
    assert httpx2.post(f"{strict.url}{path}", headers=headers).status_code == 403


def test_the_refusal_names_the_origin(front, answered):
    headers = {"origin": "https://evil.example"}
    answer = httpx2.put(f"{front.url}/predictions/x", headers=headers)
    answered(answer.json()["error"], CrossSiteRequest(origin="https://evil.example"))
    answer = httpx2.post(f"{front.url}/tokenize", headers={"sec-fetch-site": "cross-site"})
    assert answer.json()["error"]["code"] == "E1347"
    assert "unknown" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"sec-fetch-site": "same-origin", "origin": "https://chat.example.com"},  # a proxy changed `Host`
        {"sec-fetch-site": "none"},
        {"origin": "https://chat.example.com", "host": "chat.example.com"},
        {"origin": "https://chat.example.com", "host": "Chat.example.com:443"},
        {"origin": "http://localhost:5000", "host": "localhost:5000"},
        {"origin": "http://[::1]:5000", "host": "[::1]:5000"},
        {"origin": "https://desktop.example", "authorization": "Bearer x"},
        {"origin": APP, "sec-fetch-site": "cross-site"},
    ],
)
def test_its_own_page_and_programs_are_answered(strict, headers):
    answer = httpx2.post(f"{strict.url}/predictions", headers=headers, json=BODY)
    assert answer.status_code == 200


def test_pages_of_other_origins_may_be_led_here(strict):
    """By a link: they do not see what it shows."""
    headers = {"sec-fetch-site": "cross-site", "accept": "text/html"}
    answer = httpx2.get(strict.url, headers=headers)
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("origin", [APP, "tauri://localhost"])
def test_an_allowed_page_is_told_that_it_may_and_reads_the_answer(strict, origin):
    asked = httpx2.options(f"{strict.url}/v1/completions", headers={"origin": origin, **PREFLIGHT})
    assert asked.status_code == 200
    assert asked.headers["access-control-allow-origin"] == origin
    assert asked.headers["access-control-allow-headers"] == "content-type,x-stainless-os"
    assert "PUT" in asked.headers["access-control-allow-methods"]
    assert asked.headers["vary"] == "origin"
    for path in ("/v1/completions", "/predictions"):
        answer = httpx2.post(f"{strict.url}{path}", json={}, headers={"origin": origin})
        assert answer.headers["access-control-allow-origin"] == origin
        assert answer.headers["access-control-expose-headers"] == "*"


def test_an_allowed_page_reads_events(strict):
    headers = {"origin": APP, "accept": "text/event-stream"}
    answer = httpx2.post(f"{strict.url}/predictions", json=BODY, headers=headers)
    assert answer.headers["access-control-allow-origin"] == APP
    assert "event: completed" in answer.text


@pytest.mark.parametrize("origin", ["https://evil.example", "http://app.example.com", f"{APP}:444", "null"])
def test_another_page_is_not_told_that_it_may(strict, origin):
    asked = httpx2.options(f"{strict.url}/v1/completions", headers={"origin": origin, **PREFLIGHT})
    assert asked.status_code == 405
    assert "access-control-allow-origin" not in asked.headers
    assert asked.headers["vary"] == "origin"


def test_by_default_no_page_is_told_that_it_may(front):
    asked = httpx2.options(f"{front.url}/predictions", headers={"origin": APP, **PREFLIGHT})
    assert asked.status_code == 405
    assert "access-control-allow-origin" not in asked.headers


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("ALLOWED_HOSTS", "https://chat.example.com"),
        ("ALLOWED_HOSTS", "chat.example.com:443"),
        ("ALLOWED_HOSTS", "chat.example.com/x"),
        ("ALLOWED_HOSTS", "a b"),
        ("ALLOWED_HOSTS", "*chat.example.com"),
        ("ALLOWED_HOSTS", "."),
        ("CORS_ORIGINS", "*"),
        ("CORS_ORIGINS", "app.example.com"),
        ("CORS_ORIGINS", "null"),
        ("CORS_ORIGINS", f"{APP}/page"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused(setting, value):
    with pytest.raises(SettingInvalid, match=setting):
        Browsers.of(settings(**{setting: value}), None, keys=False)


@pytest.mark.parametrize(
    ("written", "names"),
    [("[::1]", {"::1"}), ("*.Example.com", {".example.com"}), ("caf\u00e9.example", {"xn--caf-dma.example"})],
)
def test_names_are_read_as_browsers_send_them(written, names):
    browsers = Browsers.of(settings(ALLOWED_HOSTS=written), None, keys=False)
    assert browsers._hosts == names
