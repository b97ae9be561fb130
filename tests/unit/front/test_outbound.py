"""Files that are sent to an address that a client gave."""

import asyncio

import pytest

from runner.front.addresses import Addresses
from runner.front.outbound import put_file
from shared.errors import UploadFailed


def test_a_log_of_tls_keys_that_cannot_be_written_is_told(tmp_path, monkeypatch):
    (tmp_path / "engine.tar").write_bytes(b"x")
    monkeypatch.setenv("SSLKEYLOGFILE", "/none/keys")
    addresses = Addresses(["https://127.0.0.1"], None, "UPLOAD_ALLOW")
    with pytest.raises(UploadFailed, match="SSLKEYLOGFILE is /none/keys, which cannot be written"):
        asyncio.run(put_file(addresses, "https://127.0.0.1/x", tmp_path / "engine.tar", lambda _: None))
