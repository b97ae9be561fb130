"""Servers that lie, stall and drip, against everything that reads over HTTP: a coded error each time, soon,
and nothing is left.
"""

import re
import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import pytest
import tenacity

from builder.sources.config import read_config
from builder.sources.tar import fetch_model_tar
from cli.inspect import manifest_of
from runner.weights import fetch_weights
from shared.errors import (
    ConfigUnreachable,
    DownloadFailed,
    EngineArchiveMalformed,
    NotEnoughSpace,
    WeightsUnreachable,
)
from shared.http import limits
from shared.http.connections import basic
from tests.support.hostile import CERTIFICATE, Hostile, drips, floods, ranged, redirects, says

SECONDS = 0.3
"""What a server may take, here."""
SLOW = "did not answer in time|sends too slowly"
Refusals = type[Exception] | tuple[type[Exception], ...]


def model_tar(url, directory):
    fetch_model_tar(url, directory / "model", directory, lambda _done, _total: None)


def weights(url, directory):
    fetch_weights(url, directory / "cache", check=lambda _: None, max_bytes=1 << 30)


READERS: dict[str, tuple[Callable[[str, Path], object], Refusals]] = {
    "config": (lambda url, _: read_config(url), ConfigUnreachable),
    "model tar": (model_tar, (DownloadFailed, NotEnoughSpace)),
    "weights": (weights, WeightsUnreachable),
    "inspect": (lambda url, _: manifest_of(url), WeightsUnreachable),
}


LIES = {
    "redirects to half an address": redirects("http://[::1"),
    "redirects to a port that is none": redirects("http://127.0.0.1:99999/"),
    "redirects to a host that is too long": redirects(f"http://{'a' * 300}.invalid/"),
    "redirects to a file": redirects("file:///etc/hostname"),
    "redirects to no host": redirects("http:///x"),
    "redirects to itself": redirects("/a.tar"),
    "redirects to control characters": redirects("http://127.0.0.1:1/\x01\x7f"),
    "redirects to where nobody listens": redirects("http://127.0.0.1:1/?signature=secret"),
    "hangs up": says(""),
    "speaks no HTTP": says("220 ready\n"),
    "has a status of its own": says("HTTP/1.1 999 secret\nContent-Length: 0\n\n"),
    "has no chunk size": says("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\nsecret\n"),
    "has an endless line": floods("HTTP/1.1 200 OK\nX: ", b"x" * 4096),
    "has endless headers": floods("HTTP/1.1 200 OK\n", b"X: x\r\n"),
}
RANGES = {
    "sends a byte of none": ranged("bytes 0-0/0"),
    "sends a byte before its first": ranged("bytes 1-0/9"),
    "sends a byte beyond its last": ranged("bytes 9-9/9"),
    "has more digits than a number": ranged(f"bytes 0-0/{'9' * 5000}"),
    "has no numbers": ranged("bytes 0-0/*"),
    "has other numbers": ranged("bytes 0-0/\xb2"),
    "has more than there is": ranged(f"bytes 0-0/{10**17}"),
}
DRIPS = {
    "drips its headers": drips("HTTP/1.1 200 OK\nX: "),
    "drips status lines": drips("", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "drips its body": drips("HTTP/1.1 200 OK\nContent-Length: 5000\n\n"),
    "drips a body without end": drips("HTTP/1.1 200 OK\n\n"),
    "drips chunks": drips("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n", b"1\r\nx\r\n"),
    "drips the size of a chunk": drips("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n", b"0"),
    "drips trailers": drips("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n0\n", b"X: x\r\n"),
}


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch):
    monkeypatch.setattr(limits, "WAIT", tenacity.wait_none())
    monkeypatch.setattr(limits, "ANSWER_SECONDS", SECONDS)
    monkeypatch.setattr(limits, "PACE_SECONDS", SECONDS)


def refusal(reader, server, directory):
    """What reading from there ends with."""
    read, error = READERS[reader]
    with pytest.raises(error) as caught:
        read(server.url, directory)
    assert "secret" not in str(caught.value)
    assert [path for path in directory.rglob("*") if path.is_file()] == []
    return str(caught.value)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_a_coded_error(lie, reader, tmp_path):
    with Hostile(LIES[lie]) as server:
        refusal(reader, server, tmp_path)


@pytest.mark.parametrize("reader", READERS)
def test_a_certificate_that_is_not_trusted(reader, tmp_path, monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with Hostile(says(""), tls=True) as server:
        told = refusal(reader, server, tmp_path)
    assert "_ssl" not in told
    assert "the server's certificate is not trusted (self-signed certificate)" in told


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("lie", ["hangs up", "speaks no HTTP", "has no chunk size"])
def test_a_broken_connection_is_told_in_our_words(lie, reader, tmp_path):
    with Hostile(LIES[lie]) as server:
        assert "the connection broke, or what arrived is not HTTP" in refusal(reader, server, tmp_path)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("lie", RANGES)
def test_a_range_that_cannot_be_is_a_coded_error(lie, reader, tmp_path):
    with Hostile(RANGES[lie]) as server:
        refusal(reader, server, tmp_path)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("drip", DRIPS)
def test_a_drip_is_given_up(drip, reader, tmp_path):
    began = time.monotonic()
    with Hostile(DRIPS[drip]) as server:
        assert re.search(SLOW, refusal(reader, server, tmp_path))
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("drip", ["drips its headers", "drips the size of a chunk"])
def test_a_drip_over_tls_is_given_up(drip, tmp_path, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    with Hostile(DRIPS[drip], tls=True) as server:
        assert re.search(SLOW, refusal("config", server, tmp_path))


@pytest.fixture
def _patient(monkeypatch):
    """For a server that answers: even on a busy machine."""
    monkeypatch.setattr(limits, "ANSWER_SECONDS", 60)


@pytest.mark.usefixtures("_patient")
def test_a_part_that_drips_is_given_up(tmp_path):
    """The first answer is as it should be; then a byte comes now and then."""

    def script(server, connection, asked):
        whole = "bytes=0-0" in asked
        last = 0 if whole else 4095
        head = f"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-{last}/4096\r\n"
        connection.sendall(f"{head}Content-Length: {last + 1}\r\n\r\nx".encode())
        if not whole:
            server.drip(connection)

    with Hostile(script) as server:
        assert "sends too slowly" in refusal("weights", server, tmp_path)


def in_small_pieces(total, answer):
    """A script of a server with a file of so many bytes; `answer` sends the body from that byte on."""

    def script(server, connection, asked):
        first = int(re.findall(r"bytes=(\d+)-", asked)[0])
        last = 0 if "bytes=0-0" in asked else total - 1
        head = f"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {first}-{last}/{total}\r\n"
        connection.sendall(f"{head}Content-Length: {last + 1 - first}\r\n\r\n".encode())
        if last:
            answer(server, connection)
        else:
            connection.sendall(b"x")

    return script


@pytest.mark.usefixtures("_patient")
def test_a_byte_from_each_connection_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "PATIENCE_SECONDS", SECONDS)

    def drop(server, connection):
        server.stopped.wait(0.05)
        connection.sendall(b"x")

    with Hostile(in_small_pieces(1000, drop)) as server:
        assert "sends too slowly" in refusal("weights", server, tmp_path)


@pytest.mark.usefixtures("_patient")
@pytest.mark.parametrize("patience", [SECONDS, 300])
def test_what_slow_connections_have_brought_is_kept(tmp_path, monkeypatch, patience):
    """Each brings a little more than it must, and then stalls: more of them than attempts that bring nothing."""
    monkeypatch.setattr(limits, "PATIENCE_SECONDS", patience)
    monkeypatch.setattr(limits, "SILENCE_SECONDS", 60)
    monkeypatch.setattr(limits, "SLOWEST", 100)
    brought = int(limits.SLOWEST * SECONDS) * 10

    def stall(server, connection):
        connection.sendall(b"x" * brought)
        server.drip(connection)

    # All of it comes.
    with Hostile(in_small_pieces(10 * brought, stall)) as server, pytest.raises(EngineArchiveMalformed):
        weights(server.url, tmp_path)


@pytest.mark.usefixtures("_patient")
def test_nothing_goes_from_https_to_http(tmp_path, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    with Hostile(redirects("http://127.0.0.1:1/"), tls=True) as server:
        assert "redirects from https:// to http://" in refusal("weights", server, tmp_path)


@pytest.mark.usefixtures("_patient")
def test_an_empty_file_is_no_archive(tmp_path):
    def script(_server, connection, asked):
        status = "416 Range Not Satisfiable" if "Range:" in asked else "200 OK"
        connection.sendall(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())

    with Hostile(script) as server, pytest.raises(EngineArchiveMalformed):
        manifest_of(server.url)


@pytest.mark.usefixtures("_patient")
def test_a_server_that_refuses_the_whole_file_like_a_range_is_named(tmp_path):
    def script(_server, connection, _asked):
        connection.sendall(b"HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\n\r\n")

    with Hostile(script) as server:
        assert "answered 416" in refusal("weights", server, tmp_path)


def test_a_password_of_any_characters_is_sent_as_its_bytes():
    assert basic("u:%E2%82%AC") == f"Basic {b64encode('u:€'.encode()).decode()}"


def test_a_proxy_that_is_no_url_is_blamed_itself(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://a:b:c")
    monkeypatch.delenv("no_proxy", raising=False)
    with pytest.raises(ConfigUnreachable, match="the proxy in the environment is not a valid URL"):
        read_config("http://example.invalid/config.yaml")
