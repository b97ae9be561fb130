"""Addresses that cannot be measured, and why a server is not reached."""

import socket
import ssl
import threading
from contextlib import suppress

import pytest
from typer.testing import CliRunner

from cli.main import app
from cli.perf import http
from cli.perf.address import parsed
from cli.perf.http import why
from shared.errors import ServerNotMeasured
from tests.support.loopback import LoopbackServer, QuietHandler


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("http://127.0.0.1:abc", "its port is not a number from 0 to 65535"),
        ("http://127.0.0.1:99999", "its port is not a number from 0 to 65535"),
        ("http://[::1", "it is not a valid address"),
        ("http://[x]:1", "it is not a valid address"),
        ("http://a\u2100b:1", "it is not a valid address"),
        ("http://", "it names no host"),
        ("http://:80", "it names no host"),
        ("grpc://", "it names no host"),
        ("ftp://a", "an address begins with http://, https:// or grpc://"),
        ("user:word@host:1", "an address with a user begins with http:// or https://"),
        ("grpc://user:word@host:1", "a grpc:// address has no user"),
    ],
)
def test_what_is_wrong_with_an_address(address, reason):
    with pytest.raises(ServerNotMeasured, match=f"cannot be measured: {reason}. Check") as refused:
        parsed(address)
    assert "word" not in str(refused.value)


def test_an_address_of_metrics_that_is_none_is_refused_before_the_load():
    asked = ["perf", "http://127.0.0.1:1", "--metrics", "http://host:abc/metrics"]
    refused = CliRunner().invoke(app, asked).exception
    assert isinstance(refused, ServerNotMeasured)
    assert "http://host:abc/metrics cannot be measured: its port is not a number" in str(refused)


@pytest.mark.parametrize("target", ["cog-triton", "openai", "mock", "replicate"])
def test_only_triton_is_asked_over_grpc(target):
    asked = ["perf", "grpc://127.0.0.1:1", "--target", target]
    refused = CliRunner().invoke(app, asked).exception
    assert isinstance(refused, ServerNotMeasured)
    assert "grpc://127.0.0.1:1 cannot be measured: only Triton is asked over gRPC. Check" in str(refused)


@pytest.mark.parametrize(
    ("address", "options", "paths"),
    [
        ("/v1", [], ["/v1/models", "/v1/chat/completions"]),
        ("/", ["--target", "openai"], ["/v1/models", "/v1/chat/completions"]),
        ("", [], ["/v2/health/ready", "/health-check", "/predictions"]),
    ],
)
def test_the_query_of_the_address_goes_with_every_request(address, options, paths):
    """Gateways want `?api-version=` with each."""
    asked = []

    class Gateway(QuietHandler):
        def do_GET(self) -> None:
            asked.append(self.requestline.split()[1])  # of several slashes, `path` keeps one
            path, _, query = self.path.partition("?")
            self._answer(b'{"data": [{"id": "m"}]}' if query and not path.startswith("/v2") else b"")

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            asked.append(self.requestline.split()[1])  # of several slashes, `path` keeps one
            self._answer(b"")

        def _answer(self, answer: bytes) -> None:
            self.send_response(200 if answer else 404)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    with LoopbackServer(Gateway) as gateway:
        place = f"{gateway.url}{address}?api-version=1&of=a b"
        CliRunner().invoke(app, ["perf", place, "--requests", "1", *options])
    assert set(asked) >= {f"{path}?api-version=1&of=a%20b" for path in paths}
    assert all(path.endswith("?api-version=1&of=a%20b") for path in asked)


def test_grpc_has_no_query():
    with pytest.raises(
        ServerNotMeasured, match=r"grpc://host:8001 cannot be measured: a grpc:// address has no query\."
    ):
        parsed("grpc://host:8001?a=1")


def test_metrics_are_not_read_over_grpc():
    asked = ["perf", "http://127.0.0.1:1", "--metrics", "grpc://127.0.0.1:8001"]
    refused = CliRunner().invoke(app, asked).exception
    assert isinstance(refused, ServerNotMeasured)
    assert "grpc://127.0.0.1:8001 cannot be measured: metrics are read over http:// or https://. " in str(
        refused
    )


@pytest.mark.parametrize("key", ["secret-value\n", "secret-valué"])
@pytest.mark.parametrize(
    ("target", "variable"),
    [
        ((), "OPENAI_API_KEY"),
        (("--target", "openai"), "OPENAI_API_KEY"),
        (("--target", "mock"), "OPENAI_API_KEY"),
        (("--target", "replicate"), "REPLICATE_API_TOKEN"),
    ],
)
def test_a_key_that_cannot_be_sent_is_refused_and_not_shown(target, variable, key):
    refused = CliRunner().invoke(app, ["perf", "http://127.0.0.1:1", *target], env={variable: key}).exception
    assert isinstance(refused, ServerNotMeasured)
    assert f"the key in {variable} has characters that no key has" in str(refused)
    assert "secret" not in str(refused)


def test_a_certificate_of_another_host_is_told_in_one_sentence():
    refused = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] ... (_ssl.c:1006)")
    refused.verify_message = "Hostname mismatch, certificate is not valid for 'a'."
    told = "the server's certificate is not trusted (Hostname mismatch, certificate is not valid for 'a')"
    assert why(refused) == told


def test_why_tls_fails_is_said_without_pythons_sources():
    refused = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)")
    refused.reason = "WRONG_VERSION_NUMBER"
    error = RuntimeError(str(refused))
    error.__cause__ = refused
    assert why(error) == "no connection over TLS (wrong version number)"


@pytest.mark.parametrize("options", [[], ["--target", "openai", "--model", "m"]])
def test_a_log_of_tls_keys_that_cannot_be_written_is_told(options, monkeypatch):
    monkeypatch.setenv("SSLKEYLOGFILE", "/none/keys")
    http._trusted.cache_clear()
    asked = ["perf", "https://127.0.0.1:1", "--requests", "1", *options]
    refused = CliRunner().invoke(app, asked).exception
    assert isinstance(refused, ServerNotMeasured)
    assert "SSLKEYLOGFILE is /none/keys, which cannot be written (No such file or directory)" in str(refused)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"])
def test_a_first_request_that_gets_nothing_is_abandoned(answer):
    """It was waited for without an end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        held = []

        def accept():
            with suppress(OSError):
                while True:
                    held.append(listener.accept()[0])
                    held[-1].recv(1)  # an answer before the question is none
                    held[-1].sendall(answer)

        thread = threading.Thread(target=accept)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        asked = ["perf", url, "--target", "openai", "--model", "m", "--stall", "1", "--duration", "1"]
        refused = CliRunner().invoke(app, asked).exception
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in held:
            connection.close()
    assert isinstance(refused, ServerNotMeasured)
    assert refused.details["reason"] == "its first request failed: stalled (nothing came for 1 s)"
