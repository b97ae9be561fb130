import logging
import socket
import threading
from collections import Counter
from http.server import ThreadingHTTPServer

import pytest
import tenacity

from runner.weights import fetch_weights
from shared.errors import EngineArchiveMalformed, EngineKindMismatch, WeightsUnreachable
from shared.http import limits
from tests.support.loopback import LoopbackServer, QuietHandler
from tests.unit.artifact.archives import CONTENTS, files_below, made

BIG = made({**CONTENTS, "engine/big.bin": bytes(3 << 20)})


class Server(LoopbackServer):
    stopped: threading.Event


class Handler(QuietHandler):
    """What it answers depends on the path; it has no ranges."""

    server: Server
    asked: Counter[str]
    accepted: list[str | None]

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.asked[path] += 1
        self.accepted.append(self.headers["Accept-Encoding"])
        match path:
            case "/engine.tar":
                self.answer(200, BIG)
            case "/cut.tar":
                self.answer(200, BIG[: len(BIG) // 2], length=len(BIG))
            case "/chunked-and-cut.tar":
                self.answer(200, BIG[: len(BIG) // 2], length=None)
            case "/stalls.tar":
                self.answer(200, BIG[: 1 << 20], length=len(BIG))
                self.server.stopped.wait(60)
            case "/busy.tar":
                self.answer(200 if self.asked[path] == 3 else 503, BIG)
            case "/moved.tar":
                self.answer(302, b"", location="/engine.tar?signature=secret")
            case "/moved-to-nothing.tar":
                self.answer(302, b"", location="/none.tar?signature=secret")
            case "/circle.tar":
                self.answer(302, b"", location="/circle.tar")
            case "/elsewhere.tar":
                self.answer(302, b"", location="ftp://files/engine.tar?signature=secret")
            case _:
                self.answer(404, b"no")

    def answer(self, status: int, body: bytes, length: int | None = -1, location: str | None = None) -> None:
        self.send_response(status)
        if length is not None:
            self.send_header("Content-Length", str(len(body) if length < 0 else length))
        if location:
            self.send_header("Location", location)
        self.end_headers()
        try:
            self.wfile.write(body)
        except ConnectionError:
            pass  # the other side has read enough


@pytest.fixture
def server():
    handler = type("Fresh", (Handler,), {"asked": Counter(), "accepted": []})
    with Server(handler) as server:
        server.stopped = threading.Event()
        yield server
        server.stopped.set()


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(limits, "WAIT", tenacity.wait_none())


@pytest.fixture
def fetch(server, tmp_path):
    def fetch(path, **more):
        source = f"http://127.0.0.1:{server.server_port}/{path}"
        more = {"check": lambda _: None, "max_bytes": 1 << 30, **more}
        return fetch_weights(source, tmp_path / "cache", **more)

    return fetch


@pytest.mark.parametrize("path", ["engine.tar", "moved.tar", "busy.tar"])
def test_an_engine_is_unpacked_while_it_arrives(fetch, path):
    directory = fetch(path)
    assert CONTENTS.items() <= files_below(directory.path).items()
    assert list(directory.path.parent.iterdir()) == [directory.path]


def test_it_is_fetched_once(fetch, server):
    assert fetch("engine.tar") == fetch("engine.tar")
    assert server.RequestHandlerClass.asked == {"/engine.tar": 1}


def test_the_server_is_asked_for_plain_bytes(fetch, server):
    fetch("engine.tar")
    assert server.RequestHandlerClass.accepted == ["identity"]


def test_progress_counts_up_to_the_length(fetch):
    seen = []
    fetch("engine.tar", progress=lambda *both: seen.append(both))
    assert seen == sorted(seen)
    assert seen[-1] == (len(BIG), len(BIG))


def test_an_engine_that_is_refused_is_not_fetched_whole(fetch, tmp_path):
    seen = []

    def refuse(manifest):
        raise EngineKindMismatch(kind=manifest.engine, why="", available="ctranslate2")

    with pytest.raises(EngineKindMismatch):
        fetch("engine.tar", check=refuse, progress=lambda arrived, _: seen.append(arrived))
    assert seen[-1] < len(BIG) / 2
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("path", "error", "said"),
    [
        ("none.tar", WeightsUnreachable, "127.0.0.1 answered 404 Not Found"),
        ("moved-to-nothing.tar", WeightsUnreachable, "127.0.0.1 answered 404 Not Found"),
        ("circle.tar", WeightsUnreachable, "redirects more than 10 times"),
        (
            "elsewhere.tar",
            WeightsUnreachable,
            "redirects to something that is not a valid http:// or https:// URL",
        ),
        ("cut.tar", WeightsUnreachable, "the connection broke"),
        ("chunked-and-cut.tar", EngineArchiveMalformed, "ends in the middle of a file"),
    ],
)
def test_what_goes_wrong_is_named_and_leaves_nothing(fetch, tmp_path, path, error, said):
    with pytest.raises(error, match=said) as caught:
        fetch(f"{path}?signature=secret")
    assert "secret" not in str(caught.value)
    assert not (tmp_path / "cache").exists() or list((tmp_path / "cache").iterdir()) == []


def test_a_server_that_stalls_is_given_up(fetch, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "SILENCE_SECONDS", 0.2)
    with pytest.raises(WeightsUnreachable, match="the server did not answer in time"):
        fetch("stalls.tar")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_server_that_stays_busy_is_asked_five_times(fetch, server):
    server.RequestHandlerClass.asked["/busy.tar"] = 3
    with pytest.raises(WeightsUnreachable, match="503 Service Unavailable"):
        fetch("busy.tar")
    assert server.RequestHandlerClass.asked["/busy.tar"] == 8


def test_what_is_missing_is_not_asked_for_again(fetch, server):
    with pytest.raises(WeightsUnreachable):
        fetch("none.tar")
    assert server.RequestHandlerClass.asked["/none.tar"] == 1


@pytest.fixture
def closed_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def test_a_refused_connection_is_named_without_secrets(tmp_path, closed_port):
    source = f"http://me:password@127.0.0.1:{closed_port}/engine.tar?token=secret"
    with pytest.raises(WeightsUnreachable) as caught:
        fetch_weights(source, tmp_path, check=lambda _: None, max_bytes=1)
    text = str(caught.value)
    assert f"http://127.0.0.1:{closed_port}/engine.tar cannot be read" in text
    assert "no connection (Connection refused)" in text
    assert "password" not in text
    assert "secret" not in text


def test_a_server_may_come_up_a_little_later(tmp_path, monkeypatch):
    handler = type("Fresh", (Handler,), {"asked": Counter(), "accepted": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler, bind_and_activate=False) as server:
        server.server_bind()  # does not listen: connections are refused
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        refused = []

        def wait(state):
            refused.append(state.attempt_number)
            if len(refused) == 2:
                server.server_activate()
                thread.start()
            return 0

        monkeypatch.setattr(limits, "WAIT", wait)
        source = f"http://127.0.0.1:{server.server_port}/engine.tar"
        try:
            assert fetch_weights(source, tmp_path, check=lambda _: None, max_bytes=1 << 30).manifest
        finally:
            server.shutdown()
            thread.join()
    assert refused == [1, 2]


def test_an_address_that_is_none_is_named(tmp_path):
    with pytest.raises(WeightsUnreachable, match=r"http://\.\.\. cannot be read: it is not a valid URL"):
        fetch_weights("http://me:pass/word@host", tmp_path, check=lambda _: None, max_bytes=1)


def test_the_address_is_not_logged(fetch, caplog):
    caplog.set_level(logging.DEBUG)
    fetch("engine.tar?signature=secret")
    assert "secret" not in caplog.text
