"""What is said of reading over HTTP that failed."""

import socket

import pytest
import tenacity
from urllib3.exceptions import ProtocolError

from shared.http import Unreachable, limits
from shared.http.failures import translated
from shared.source import opened


def test_a_log_of_tls_keys_that_cannot_be_written_is_not_blamed_on_the_server(monkeypatch):
    monkeypatch.setattr(limits, "WAIT", tenacity.wait_none())
    monkeypatch.setenv("SSLKEYLOGFILE", "/none/keys")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"https://127.0.0.1:{listener.getsockname()[1]}/x.tar"
        with (
            pytest.raises(Unreachable, match="SSLKEYLOGFILE is /none/keys, which cannot be written"),
            opened(address, lambda _done, _total: None),
        ):
            pytest.fail("it was opened")


def test_a_connection_that_broke_is_not_blamed_on_certificates(monkeypatch, tmp_path):
    """Python passes over a file of certificates that it cannot use, and plain HTTP needs none."""
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    with pytest.raises(Unreachable, match="the connection broke"), translated():
        raise ProtocolError("Connection aborted.", ConnectionResetError(104, "Connection reset by peer"))
