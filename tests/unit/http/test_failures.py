"""What is said of reading over HTTP that failed."""

import socket

import pytest
import tenacity

from shared.http import Unreachable, limits
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
