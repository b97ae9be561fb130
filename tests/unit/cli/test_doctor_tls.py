"""What `doctor` says about certificates, proxies, and the way to the hub."""

import socket
import ssl
import threading

import pytest
from huggingface_hub import constants

from cli.doctor import Severity, tls
from shared.cog.server import free_port
from tests.support.files import CERTIFICATE
from tests.unit.cli.test_doctor import found


@pytest.fixture
def site(monkeypatch):
    """A server with a certificate of its own for loopback, in the place of the hub."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    for name in ("HTTPS_PROXY", "https_proxy", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)

    def serve(listener):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                try:
                    context.wrap_socket(connection, server_side=True).close()
                except OSError:
                    continue

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        monkeypatch.setattr(constants, "ENDPOINT", f"https://127.0.0.1:{listener.getsockname()[1]}")
        yield
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_trusted(site, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    severities, text = found(tls)
    assert severities == {Severity.OK}
    assert "127.0.0.1 can be reached" in text


def test_not_trusted(site):
    severities, text = found(tls)
    assert Severity.WARNING in severities
    assert "The certificate of 127.0.0.1 is not trusted: self" in text


def test_not_there(monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{free_port()}")
    assert "cannot be reached: Connection refused" in found(tls)[1]


def test_no_tls(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        monkeypatch.setattr(constants, "ENDPOINT", f"https://127.0.0.1:{listener.getsockname()[1]}")
        text = found(tls)[1]
        thread.join()
    assert "127.0.0.1 cannot be reached: no connection over TLS (" in text
    assert "_ssl.c" not in text


@pytest.mark.parametrize("address", ["http://hub:abc", "http://[hub", "https://hub.example.com:99999"])
def test_an_address_that_is_none(monkeypatch, address):
    monkeypatch.setenv("HF_ENDPOINT", address)
    severities, text = found(tls)
    assert Severity.WARNING in severities
    assert f"The setting HF_ENDPOINT is '{address}', but that is not a valid address." in text


@pytest.mark.parametrize(
    ("variable", "proxy"),
    [("HTTPS_PROXY", "socks5://127.0.0.1:1"), ("ALL_PROXY", "foo://x"), ("HTTP_PROXY", "http://x:port")],
)
def test_a_proxy_that_no_client_here_can_use(monkeypatch, variable, proxy):
    monkeypatch.setenv(variable, proxy)
    severities, text = found(tls)
    assert Severity.WARNING in severities
    assert f"{variable} is not an http or https URL." in text


@pytest.mark.parametrize("address", ["huggingface.co", "me:pw@hub.example", "ftp://hub.example", "http://"])
def test_an_address_of_no_site(monkeypatch, address):
    monkeypatch.setattr(constants, "ENDPOINT", address)
    severities, text = found(tls)
    assert Severity.WARNING in severities
    assert "HF_ENDPOINT is not an http or https URL." in text
    assert "pw" not in text


def test_a_host_that_cannot_be(monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", f"http://{'a' * 70}.com")
    assert "cannot be reached: no host has such a name." in found(tls)[1]


def test_silent(monkeypatch):
    monkeypatch.setattr(tls, "_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setattr(constants, "ENDPOINT", f"https://127.0.0.1:{listener.getsockname()[1]}")
        assert "127.0.0.1 cannot be reached: no answer within 0.1 s." in found(tls)[1]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("none.pem", "cannot be read (No such file or directory)."),
        ("some", "cannot be read (Is a directory)."),
        ("text.pem", "has no certificates, or damaged ones."),
    ],
)
def test_a_file_without_certificates(monkeypatch, tmp_path, name, problem):
    """Python passes over it, but the hub's library does not."""
    (tmp_path / "some").mkdir()
    (tmp_path / "text.pem").write_text("text")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / name))
    severities, text = found(tls)
    assert severities == {Severity.ERROR}
    assert f"SSL_CERT_FILE is {tmp_path / name}, which {problem}" in text


def test_no_certificates_at_all(monkeypatch, tmp_path):
    (tmp_path / "empty.pem").touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "empty.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "none"))
    assert found(tls)[0] == {Severity.ERROR}


def test_a_proxy_is_not_passed_by(monkeypatch):
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "ENDPOINT", "https://hub.example")
    assert "through the proxy in HTTPS_PROXY" in found(tls)[1]


def test_a_proxy_for_everything(monkeypatch):
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("all_proxy", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "ENDPOINT", "https://hub.example")
    assert "through the proxy in ALL_PROXY" in found(tls)[1]


def test_a_host_that_needs_no_proxy_is_asked(monkeypatch):
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(constants, "ENDPOINT", f"https://127.0.0.1:{free_port()}")
    assert "127.0.0.1 cannot be reached: Connection refused." in found(tls)[1]
