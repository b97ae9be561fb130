"""The way to the hub: addresses, proxies, certificates, tokens, and what answers there."""

import socket
import ssl
import threading
from contextlib import suppress

import httpx2
import pytest
from huggingface_hub import close_session, constants
from huggingface_hub.errors import HfHubHTTPError

from builder.sources.download import Download
from builder.sources.hub import HubModel
from builder.sources.hub_limits import limit_the_hub
from shared.errors import (
    DownloadFailed,
    ModelGated,
    ModelNotFound,
)
from tests.support.files import CERTIFICATE
from tests.support.loopback import LoopbackServer, QuietHandler


def ignore(done, total=None):
    pass


def test_gated(hub, state):
    hub.repositories["someone/tiny"].gated = True
    hub.repositories["someone/tiny"].token = "hf_right"
    with pytest.raises(ModelGated):
        Download("someone/tiny").run(state, ignore)


@pytest.mark.parametrize("gated", [True, False])
def test_token_opens_the_model(hub, state, gated):
    hub.repositories["someone/tiny"].gated = gated
    hub.repositories["someone/tiny"].token = "hf_right"
    state.hf_token = "hf_right"
    Download("someone/tiny").run(state, ignore)
    assert hub.tokens == {"hf_right"}
    assert hub.tokens_of_storage == set()


def test_private_is_not_found(hub, state):
    hub.repositories["someone/tiny"].token = "hf_right"
    with pytest.raises(ModelNotFound, match="private"):
        Download("someone/tiny").run(state, ignore)


def test_hub_is_failing(hub, state):
    hub.failing = True
    with pytest.raises(DownloadFailed, match="answered 503"):
        Download("someone/tiny").run(state, ignore)


def test_no_hub(state, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(DownloadFailed, match="no connection"):
        Download("someone/tiny").run(state, ignore)


def test_a_file_of_certificates_that_cannot_be_used(hub, state, monkeypatch, tmp_path):
    """Which was taken for a cache that belongs to somebody else, or told in the words of Python's sources."""
    (tmp_path / "text.pem").write_text("text")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "text.pem"))
    limit_the_hub()  # with a new client
    try:
        with pytest.raises(DownloadFailed, match=r"SSL_CERT_FILE is .*/text\.pem, which has no certificates"):
            Download("someone/tiny").run(state, ignore)
    finally:
        limit_the_hub()


def test_a_hub_that_nobody_trusts(state, monkeypatch):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet():
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                context.wrap_socket(connection, server_side=True)

        thread = threading.Thread(target=greet)
        thread.start()
        monkeypatch.setattr(constants, "ENDPOINT", f"https://127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(DownloadFailed, match="the server's certificate is not trusted"):
            Download("someone/tiny").run(state, ignore)
        thread.join()


@pytest.mark.parametrize(
    "address", ["huggingface.co", "localhost:80", "ftp://a/b", "http://", "http://hub:abc"]
)
def test_a_hub_that_is_no_address(state, monkeypatch, address):
    monkeypatch.setattr(constants, "ENDPOINT", address)
    with pytest.raises(DownloadFailed, match="HF_ENDPOINT is not an http or https URL"):
        HubModel("someone/tiny", None, None).files()
    with pytest.raises(DownloadFailed, match="HF_ENDPOINT is not an http or https URL"):
        Download("someone/tiny").run(state, ignore)


@pytest.mark.parametrize(
    ("variable", "proxy"),
    [("HTTPS_PROXY", "socks5://127.0.0.1:1"), ("ALL_PROXY", "foo://x"), ("HTTP_PROXY", "http://x:port")],
)
def test_a_proxy_that_no_client_here_can_use(state, monkeypatch, variable, proxy):
    monkeypatch.setenv(variable, proxy)
    close_session()  # the hub's library makes its client once
    try:
        with pytest.raises(DownloadFailed, match=f"{variable} is not an http or https URL"):
            Download("someone/tiny").run(state, ignore)
    finally:
        close_session()


@pytest.mark.parametrize("page", [b"<html>Log in first</html>", b"[]", b'"no"', b"null", b"{}"])
def test_what_answers_is_not_a_hub(state, monkeypatch, page):
    class Page(QuietHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

    with LoopbackServer(Page) as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        with pytest.raises(DownloadFailed, match=f"what answers at {server.url} is not a Hugging Face hub"):
            Download("someone/tiny").run(state, ignore)


def test_a_stored_token_that_can_be_none(hub, monkeypatch, tmp_path):
    """The hub was said to be none."""
    (tmp_path / "token").write_text("\ufeffhf_abc")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with pytest.raises(
        ModelNotFound, match="the token that is stored in HF_HOME has characters that no token"
    ):
        HubModel("someone/tiny", None, None).files()


def test_a_token_that_can_be_none(hub):
    with pytest.raises(ModelNotFound, match="this hf_token has characters that no token has"):
        HubModel("someone/tiny", None, "hf_\N{EURO SIGN}").files()


@pytest.mark.parametrize("token", ["hf_secret\n", " hf_secret\r\n"])
def test_a_token_with_the_newline_of_its_file(hub, token):
    """It was refused as one that no token can be; with a space, the model was said to be restricted."""
    HubModel("someone/tiny", None, token).files()
    assert hub.tokens == {"hf_secret"}


@pytest.mark.parametrize(
    ("given", "sent", "reason"),
    [
        ("hf_x", {"authorization": "Bearer hf_x"}, "the hub does not accept this hf_token"),
        (
            None,
            {"authorization": "Bearer hf_y"},
            "the hub does not accept the token that is stored in HF_HOME",
        ),
        (None, {}, "the hub wants a token"),
    ],
)
def test_whose_token_is_not_accepted(hub, given, sent, reason):
    """A mirror whose addresses the library does not know: it would call the model unknown."""
    request = httpx2.Request("GET", hub.url, headers=sent)
    answer = HfHubHTTPError("no", response=httpx2.Response(401, request=request))
    with pytest.raises(ModelNotFound, match=f"cannot be found: {reason}[.]"):
        raise HubModel("a/b", None, given)._translated(answer)


@pytest.mark.parametrize(
    ("variable", "place"),
    [("HUGGING_FACE_HUB_TOKEN", "in HUGGING_FACE_HUB_TOKEN"), ("HF_TOKEN_PATH", "stored in HF_TOKEN_PATH")],
)
def test_a_token_that_only_the_library_knows_is_named_by_its_variable(hub, monkeypatch, variable, place):
    monkeypatch.setenv(variable, "/hf_y")
    request = httpx2.Request("GET", hub.url, headers={"authorization": "Bearer hf_y"})
    answer = HfHubHTTPError("no", response=httpx2.Response(401, request=request))
    with pytest.raises(ModelNotFound, match=rf"does not accept the token (that is )?{place}\."):
        raise HubModel("a/b", None, None)._translated(answer)
