"""Reports to an address that a client gave: where it may be, and what it gets."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import socket
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import httpx2
import pytest

from runner.front import front as front_module
from runner.front import resolver
from runner.front.addresses import Addresses, allowed_addresses, origin_of
from runner.front.cog import webhooks
from runner.front.cog.prediction import Prediction
from runner.front.outbound import why_failed
from runner.settings import Settings
from shared.errors import AddressRefused, SettingInvalid, WebhooksWaiting
from tests.support.front import running, words
from tests.support.hostile import CERTIFICATE
from tests.support.loopback import LoopbackServer, QuietHandler

TOKEN = "the operator's"


@contextmanager
def hook(answers=(), *, tls=False):
    """An address that is told; it answers with these statuses or addresses to go on to (a pair of both, or with
    307), then with 200, and each time with a cookie.
    """
    told, waiting = [], list(answers)

    class Handler(QuietHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            told.append((dict(self.headers), json.loads(body) if body else None))
            answer = waiting.pop(0) if waiting else 200
            status, location = (answer, None) if isinstance(answer, int) else (307, answer)
            if isinstance(answer, tuple):
                status, location = answer
            self.send_response(status)
            self.send_header("set-cookie", f"told={len(told)}")
            if location is not None:
                self.send_header("location", location)
            self.end_headers()

    with LoopbackServer(Handler) as server:
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(CERTIFICATE)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        yield server.url.replace("http:", "https:") if tls else server.url, told


def statuses(told) -> list[str]:
    return [view["status"] for _, view in told]


def check(address):
    """Whether something is sent there."""
    addresses = Addresses([], TOKEN, "WEBHOOK_ALLOW")
    try:
        asyncio.run(addresses.check(address, ""))
    finally:
        addresses.close()


def wait_told(told, condition):
    deadline = time.monotonic() + 30
    while not condition(told):
        assert time.monotonic() < deadline, told
        time.sleep(0.01)


def predict(front, **body):
    return httpx2.post(
        f"{front.url}/predictions", json={"input": {"prompt": "a", "max_tokens": 5}, **body}, timeout=30
    )


@contextmanager
def front_that_may_tell(engine_directory, *addresses):
    with running(
        engine_directory,
        step_seconds=0.005,
        WEBHOOK_ALLOW=",".join(addresses),
        WEBHOOK_AUTH_TOKEN=TOKEN,
    ) as front:
        yield front


def test_webhooks_carry_the_trace_context_of_their_request(engine_directory):
    """As Cog's do; a context that is not valid is none."""
    good = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "tracestate": "x=y"}
    for sent, passed_on in ((good, good), (good | {"traceparent": "no"}, {}), ({}, {})):
        with hook() as (address, told), front_that_may_tell(engine_directory, address) as front:
            body = {"input": {"prompt": "a", "max_tokens": 5}, "webhook": address}
            httpx2.post(f"{front.url}/predictions", json=body, headers=sent, timeout=30)
            wait_told(told, lambda told: told and statuses(told)[-1] == "succeeded")
        for headers, _ in told:
            assert {name: headers[name] for name in good if name in headers} == passed_on


def test_a_webhook_is_told_of_start_output_and_end(engine_directory):
    with hook() as (address, told), front_that_may_tell(engine_directory, address) as front:
        predict(front, webhook=f"{address}/x?y=1", input={"prompt": "a", "max_tokens": 300})
        wait_told(told, lambda told: told and statuses(told)[-1] == "succeeded")
    assert statuses(told)[0] == "processing"
    assert 3 <= len(told) <= 8  # one at most every half second, and the last
    assert "".join(told[-1][1]["output"]) == words(300)
    assert {headers["authorization"] for headers, _ in told} == {f"Bearer {TOKEN}"}


def test_a_webhook_may_have_a_certificate_of_an_authority_in_ssl_cert_file(engine_directory, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    with hook(tls=True) as (address, told), front_that_may_tell(engine_directory, address) as front:
        predict(front, webhook=address, webhook_events_filter=["completed"])
        wait_told(told, bool)
    assert statuses(told) == ["succeeded"]


def test_a_certificate_that_is_not_trusted_is_told_in_the_log(engine_directory, monkeypatch):
    reasons = []
    monkeypatch.setattr(
        webhooks, "log", SimpleNamespace(warning=lambda _, reason, **__: reasons.append(reason))
    )
    monkeypatch.setattr(webhooks, "_FIRST_PAUSE", 0.01)
    with hook(tls=True) as (address, told), front_that_may_tell(engine_directory, address) as front:
        predict(front, webhook=address, webhook_events_filter=["start"])
        wait_told(reasons, bool)
    assert told == []
    assert reasons == ["the server's certificate is not trusted (self-signed certificate)"]


def test_a_filter(engine_directory):
    with hook() as (address, told), front_that_may_tell(engine_directory, address) as front:
        predict(front, webhook=address, webhook_events_filter=["completed"])
        wait_told(told, bool)
        predict(front, webhook=address, webhook_events_filter=["start"], id="second")
        wait_told(told, lambda told: len(told) == 2)
    assert statuses(told) == ["succeeded", "processing"]


def test_the_end_is_told_again_until_it_is_heard(engine_directory, monkeypatch):
    monkeypatch.setattr(webhooks, "_FIRST_PAUSE", 0.01)
    with hook([500, 503, 429]) as (address, told), front_that_may_tell(engine_directory, address) as front:
        predict(front, webhook=address, webhook_events_filter=["completed"])
        wait_told(told, lambda told: len(told) == 4)
    assert set(statuses(told)) == {"succeeded"}


def test_what_the_receiver_of_one_report_sets_is_not_sent_with_others(engine_directory):
    with hook() as (address, told), front_that_may_tell(engine_directory, address) as front:
        for prediction_id in ("one", "another"):
            predict(front, webhook=address, webhook_events_filter=["completed"], id=prediction_id)
            wait_told(told, lambda told, this=prediction_id: told and told[-1][1]["id"] == this)
    assert [headers for headers, _ in told if "Cookie" in headers] == []


def test_a_webhook_on_this_machine_is_refused_unless_it_is_named(engine_directory, answered):
    with hook() as (address, told), running(engine_directory) as front:
        answer = predict(front, webhook=address)
        assert answer.status_code == 422
        reason = "it is on this machine or in a private network"
        answered(
            answer.json()["error"],
            AddressRefused(address=address, reason=reason, setting="WEBHOOK_ALLOW"),
        )
    assert told == []


def test_a_redirect_to_another_place_on_this_machine_is_not_followed(engine_directory):
    with hook() as (inner, reached), hook([f"{inner}/secret"] * 9) as (address, told):
        with front_that_may_tell(engine_directory, address) as front:
            predict(front, webhook=address, webhook_events_filter=["completed"])
            wait_told(told, bool)
            time.sleep(0.2)
        assert reached == []


def test_a_redirect_does_not_take_the_token_along(engine_directory):
    with hook() as (inner, reached), hook([f"{inner}/x"]) as (address, _):
        with front_that_may_tell(engine_directory, address, inner) as front:
            predict(front, webhook=address, webhook_events_filter=["completed"])
            wait_told(reached, bool)
        assert "authorization" not in reached[0][0]


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_sent_the_whole_report(engine_directory, status):
    """After 301 and 302 it was sent a GET without a body, whose 200 counted."""
    with (
        hook() as (inner, reached),
        hook([(status, f"{inner}/x")]) as (address, _),
        front_that_may_tell(engine_directory, address, inner) as front,
    ):
        predict(front, webhook=address, webhook_events_filter=["completed"])
        wait_told(reached, bool)
    assert statuses(reached) == ["succeeded"]


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1/",
        "http://localhost:5000/",
        "http://[::1]/",
        "http://10.0.0.1/",
        "http://192.168.1.1/",
        "http://172.16.0.1/",
        "http://169.254.169.254/latest/meta-data",
        "http://[fe80::1]/",
        "http://[fd00::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[2002:7f00:1::]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[64:ff9b:1::1]/",
        "http://[::127.0.0.1]/",
        "http://[fec0::1]/",
        "http://0.0.0.0/",
        "http://0/",
        "http://2130706433/",
        "http://224.0.0.1/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "http:///x",
        "http://x:99999/",
        "not an address",
        "http://no-such-host.invalid/",
        "http://1.1.1.1/\x7f",
        "http://1.1.1.1/\n",
        f"http://1.1.1.1/{'a' * 70_000}",
        f"http://{'a' * 300}/",
    ],
)
def test_addresses_that_nothing_is_sent_to(address):
    with pytest.raises(AddressRefused):
        check(address)


@pytest.mark.parametrize("address", ["http://x:99999/", "http://x:abc/", "http://[x/"])
def test_an_address_that_is_none_is_told_in_words(address):
    with pytest.raises(AddressRefused, match=r"it is not a valid address\. Use"):
        check(address)


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (socket.EAI_NONAME, "its name is unknown"),
        (socket.EAI_AGAIN, "its name cannot be looked up at the moment, but may be later"),
    ],
)
def test_a_name_without_an_address_is_told_in_words(names, number, told):
    names["hooks.example.com"] = number
    with pytest.raises(AddressRefused, match=f"{told}\\."):
        check("https://hooks.example.com/")


def test_the_token_goes_to_what_is_named_alone():
    addresses = Addresses(["https://hooks.example.com"], TOKEN, "WEBHOOK_ALLOW")
    assert addresses.headers("https://hooks.example.com/a") == {"authorization": f"Bearer {TOKEN}"}
    assert addresses.headers("http://hooks.example.com/a") == {}
    assert addresses.headers("https://hooks.example.com:8443/a") == {}
    assert addresses.headers("https://hooks.example.com.evil.org/a") == {}
    assert addresses.headers("https://hooks.example.com@evil.org/a") == {}


@pytest.mark.parametrize("host", ["1.1.1.1", "[2606:4700::1111]", "[64:ff9b::101:101]"])
def test_a_public_address_is_allowed(host):
    check(f"https://{host}/")


def test_names_that_are_never_answered_delay_no_other_client(engine_directory, names, monkeypatch):
    """They filled the threads that look names up: a good webhook of another client was not told within 60 s."""
    monkeypatch.setattr(resolver, "_WAITING_SECONDS", 3)
    names["stuck.test"], names["good.test"] = "stuck", "127.0.0.1"
    with hook() as (address, told), running(engine_directory, WEBHOOK_ALLOW="http://good.test:0") as front:
        good = address.replace("127.0.0.1", "good.test")
        front.front._webhooks._addresses._named = frozenset({origin_of(good)})
        other = httpx2.HTTPTransport(local_address="127.0.0.2")
        with httpx2.Client(transport=other, timeout=30) as attacker, ThreadPoolExecutor(40) as threads:

            def stuck(number):
                body = {"input": {"prompt": "a", "max_tokens": 5}, "webhook": "http://stuck.test/"}
                return attacker.put(f"{front.url}/predictions/{number}", json=body)

            waiting = [threads.submit(stuck, number) for number in range(40)]
            time.sleep(0.5)
            began = time.monotonic()
            assert predict(front, webhook=good, webhook_events_filter=["completed"]).status_code == 200
            wait_told(told, bool)
            assert time.monotonic() - began < 4
            for one in waiting:
                assert "cannot be looked up at the moment" in one.result().json()["error"]


def test_a_slow_resolver_does_not_start_a_prediction_twice(engine_directory, monkeypatch):
    resolved = Addresses.check

    async def slowly(self, address, sender):
        await asyncio.sleep(0.5)
        return await resolved(self, address, sender)

    monkeypatch.setattr(Addresses, "check", slowly)
    with hook() as (address, told), front_that_may_tell(engine_directory, address) as front:

        def ask(_):
            body = {"input": {"prompt": "a", "max_tokens": 100}, "webhook": address}
            return httpx2.put(
                f"{front.url}/predictions/one", json=body, headers={"Prefer": "respond-async"}, timeout=30
            )

        with ThreadPoolExecutor(4) as clients:
            answers = list(clients.map(ask, range(4)))
        assert [answer.status_code for answer in answers] == [202] * 4
        wait_told(told, lambda told: "succeeded" in statuses(told))
        while "cog_triton_running 0.0" not in (metrics := httpx2.get(f"{front.url}/metrics").text):
            time.sleep(0.01)
    assert 'cog_triton_predictions_total{outcome="succeeded"} 1.0' in metrics


@contextmanager
def silent():
    """An address that takes connections and never answers; and the connections."""
    connections = []
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:

        def take():
            with suppress(OSError):
                while True:
                    connections.append(listener.accept()[0])

        thread = threading.Thread(target=take)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", connections
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in connections:
                connection.close()


def test_a_receiver_that_does_not_answer_delays_no_other(engine_directory):
    """All webhooks shared a hundred connections: one receiver held them all, and others were not reached at all."""
    with (
        silent() as (bad, connections),
        hook() as (good, told),
        front_that_may_tell(engine_directory, bad, good) as front,
    ):
        with ThreadPoolExecutor(8) as clients:
            options = {"webhook": bad, "webhook_events_filter": ["completed"]}
            list(clients.map(lambda _: predict(front, **options), range(130)))
        wait_told(connections, lambda connections: len(connections) == 100)
        began = time.monotonic()
        predict(front, webhook=good, webhook_events_filter=["completed"])
        wait_told(told, bool)
        assert time.monotonic() - began < 10
        assert len(connections) == 100


def test_an_answer_in_drops_is_too_late_for_all_that(engine_directory, monkeypatch):
    """Each drop began the time anew: such a receiver held its connection for ever."""
    reasons = []
    monkeypatch.setattr(
        webhooks, "log", SimpleNamespace(warning=lambda _, reason, **__: reasons.append(reason))
    )
    monkeypatch.setattr("runner.front.outbound.ANSWER_SECONDS", 1)

    class Handler(QuietHandler):
        def do_POST(self):
            self.send_response(200)
            with suppress(OSError):
                while not reasons:
                    self.wfile.write(b"X-Drop: 1\r\n")
                    time.sleep(0.2)

    with LoopbackServer(Handler) as server, front_that_may_tell(engine_directory, server.url) as front:
        predict(front, webhook=server.url, webhook_events_filter=["start"])
        wait_told(reasons, bool)
    assert reasons == ["it did not answer in time"]


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (TimeoutError(), "it did not answer in time"),
        (httpx2.ConnectError("x"), "no connection"),
        (httpx2.ConnectTimeout("x"), "it did not answer in time"),
        (httpx2.ReadTimeout("x"), "it did not answer in time"),
        (httpx2.ReadError("x"), "the connection broke"),
        (httpx2.RemoteProtocolError("x"), "its answer cannot be read"),
        (httpx2.TooManyRedirects("x"), "it redirects too often"),
        (httpx2.InvalidURL("x"), "it is, or redirects to, what is not a valid http or https address"),
    ],
)
def test_a_failure_is_told_in_words(problem, told):
    assert why_failed(problem) == told


def test_the_log_says_why_a_webhook_was_not_delivered(engine_directory, monkeypatch):
    reasons = []
    monkeypatch.setattr(
        webhooks, "log", SimpleNamespace(warning=lambda _, reason, **__: reasons.append(reason))
    )
    with hook([500] * 9) as (address, _), front_that_may_tell(engine_directory, address) as front:
        predict(front, webhook=address, webhook_events_filter=["start"])
        wait_told(reasons, bool)
    assert reasons == ["it answered with 500"]


def test_the_log_says_that_a_log_of_tls_keys_keeps_webhooks_from_being_sent(engine_directory, monkeypatch):
    reasons = []
    monkeypatch.setattr(
        webhooks, "log", SimpleNamespace(warning=lambda _, reason, **__: reasons.append(reason))
    )
    with (
        hook() as (address, told),
        front_that_may_tell(engine_directory, address) as front,
        httpx2.Client(base_url=front.url, timeout=30) as client,
    ):
        body = {"input": {"prompt": "a"}, "webhook": address, "webhook_events_filter": ["completed"]}
        monkeypatch.setenv("SSLKEYLOGFILE", "/none/keys")
        client.post("/predictions", json=body)
        wait_told(reasons, bool)
        monkeypatch.delenv("SSLKEYLOGFILE")
        client.post("/predictions", json=body)
        wait_told(told, bool)
    assert reasons == ["SSLKEYLOGFILE is /none/keys, which cannot be written (No such file or directory)"]


def test_the_log_says_what_was_not_delivered_before_the_runner_was_shut_down(engine_directory, monkeypatch):
    """Of the last report, which its receiver would still have got, there was no trace."""
    reasons = []
    monkeypatch.setattr(
        webhooks, "log", SimpleNamespace(warning=lambda _, reason, **__: reasons.append(reason))
    )
    monkeypatch.setattr(front_module, "_WEBHOOK_GRACE", 0.1)
    with silent() as (address, connections), front_that_may_tell(engine_directory, address) as front:
        predict(front, webhook=address, webhook_events_filter=["completed"])
        wait_told(connections, bool)
    assert reasons == ["the server was shut down first"]


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "http://[", f"http://{'a' * 300}/", "http://[v1.x]/"]
)
def test_a_redirect_to_no_address_is_told_in_the_log(engine_directory, location, monkeypatch):
    told_in_log = []
    monkeypatch.setattr(
        webhooks, "log", SimpleNamespace(warning=lambda event, **_: told_in_log.append(event))
    )
    with hook([location] * 9) as (address, _), front_that_may_tell(engine_directory, address) as front:
        predict(front, webhook=address, webhook_events_filter=["start"])
        wait_told(told_in_log, bool)
    assert told_in_log == ["webhook not delivered"]


@pytest.mark.parametrize(
    "token", ["s3cret-tok\N{LATIN SMALL LETTER E WITH ACUTE}n", "s3cret\ntoken", "s3cret\ttoken"]
)
def test_a_token_that_no_header_can_have_is_refused_at_the_start_without_being_shown(token):
    settings = Settings.from_environment({"WEBHOOK_AUTH_TOKEN": token})
    with pytest.raises(SettingInvalid, match="WEBHOOK_AUTH_TOKEN") as refused:
        allowed_addresses(settings)
    assert "s3cret" not in str(refused.value)


def test_a_mounted_token_may_end_its_line():
    settings = Settings.from_environment(
        {"WEBHOOK_AUTH_TOKEN": f"{TOKEN}\n", "WEBHOOK_ALLOW": "http://127.0.0.1:1"}
    )
    assert allowed_addresses(settings).headers("http://127.0.0.1:1/x") == {"authorization": f"Bearer {TOKEN}"}


def test_the_one_of_several_addresses_that_is_none_is_named():
    settings = Settings.from_environment({"WEBHOOK_ALLOW": "http://127.0.0.1:1, example.com"})
    with pytest.raises(SettingInvalid, match=re.escape("WEBHOOK_ALLOW is 'example.com', but it is not")):
        allowed_addresses(settings)


def test_a_client_with_many_undelivered_webhooks_begins_no_more(engine_directory, monkeypatch, answered):
    """Each was kept, with its prediction, for up to five minutes: they filled the memory."""
    monkeypatch.setattr(webhooks, "_ROOM", 4 << 20)
    monkeypatch.setattr(webhooks, "_EACH", 1 << 19)
    with (
        silent() as (bad, connections),
        front_that_may_tell(engine_directory, bad) as front,
        httpx2.Client(transport=httpx2.HTTPTransport(local_address="127.0.0.2"), timeout=30) as other,
    ):
        options = {"webhook": bad, "webhook_events_filter": ["completed"]}
        for _ in range(2):
            assert predict(front, **options).status_code == 200
        wait_told(connections, lambda connections: len(connections) == 2)
        refused = predict(front, **options)
        assert refused.status_code == 429
        assert refused.headers["retry-after"]
        answered(refused.json()["error"], WebhooksWaiting(limit=1))
        assert predict(front).status_code == 200
        body = {"input": {"prompt": "a", "max_tokens": 5}, **options}
        assert other.post(f"{front.url}/predictions", json=body).status_code == 200


def test_a_webhook_that_waits_does_not_keep_the_prompt(engine_directory):
    with silent() as (bad, connections), front_that_may_tell(engine_directory, bad) as front:
        predict(front, webhook=bad, webhook_events_filter=["completed"], id="mine")
        wait_told(connections, bool)
        gc.collect()
        assert [one for one in gc.get_objects() if isinstance(one, Prediction) and one.id == "mine"] == []
