"""A server with ranges: many connections, in order, whatever happens to them."""

import random
import ssl
import threading
import time

import pytest
import tenacity

from runner.weights import fetch_weights
from shared.errors import EngineArchiveCorrupt, EngineKindMismatch, WeightsUnreachable
from shared.http import client, limits, parts, remote
from tests.support import files
from tests.support.files import CERTIFICATE, FileServer
from tests.unit.artifact.archives import CONTENTS, files_below, made

KILO = 1 << 10
BIG = {**CONTENTS, "engine/rank0.engine": random.Random(0).randbytes(3000 * KILO)}
ARCHIVE = made(BIG)


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch):
    monkeypatch.setattr(limits, "WAIT", tenacity.wait_none())
    monkeypatch.setattr(client, "_READ", 4 * KILO)
    monkeypatch.setattr(parts, "FIRST", 8 * KILO)
    monkeypatch.setattr(parts, "PART", 64 * KILO)


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "engine.tar"
    path.write_bytes(ARCHIVE)
    return path


@pytest.fixture
def server(archive):
    with FileServer(archive) as server:
        yield server


@pytest.fixture
def fetch(server, tmp_path):
    def fetch(url=server.url, **more):
        more = {"check": lambda _: None, "max_bytes": 1 << 30, **more}
        return fetch_weights(url, tmp_path / "cache", **more)

    return fetch


def assert_whole(engine):
    assert BIG.items() <= files_below(engine.path).items()


def starts(server):
    return sorted(first for first, _ in server.ranges[1:])


def test_each_part_is_asked_for_once_and_all_come_in_order(fetch, server):
    assert_whole(fetch())
    assert server.ranges[0] == (0, 0)
    assert starts(server) == [0, *range(8 * KILO, len(ARCHIVE), 64 * KILO)]


def test_a_server_without_ranges_sends_one_stream(fetch, server):
    server.has_ranges = False
    assert_whole(fetch())
    assert server.ranges == [(0, 0)]


def test_progress_counts_the_bytes_of_the_archive(fetch):
    seen = []
    fetch(progress=lambda *both: seen.append(both))
    assert seen == sorted(seen)
    assert seen[-1] == (len(ARCHIVE), len(ARCHIVE))


def test_an_engine_that_is_refused_costs_the_first_part(fetch, server, tmp_path):
    def refuse(manifest):
        raise EngineKindMismatch(kind=manifest.engine, why="", available="ctranslate2")

    with pytest.raises(EngineKindMismatch):
        fetch(check=refuse)
    assert server.ranges == [(0, 0), (0, 8 * KILO - 1)]
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("seed", range(5))
def test_twenty_cut_connections_change_no_byte(fetch, server, seed):
    chance = random.Random(seed)
    server.cuts = [chance.randrange(4 * KILO, 64 * KILO) for _ in range(20)]
    assert_whole(fetch())
    assert server.cuts == []
    # Each goes on where it was cut.
    assert len(server.ranges) == len(set(server.ranges))


def test_cuts_before_the_first_byte_are_tried_again_five_times(fetch, server):
    server.cuts = [0] * 4
    assert_whole(fetch())


def test_what_never_comes_is_given_up(fetch, server, tmp_path):
    server.cuts = [0] * 1000
    with pytest.raises(WeightsUnreachable, match="the connection broke"):
        fetch()
    assert server.ranges == [(0, 0)] + [(0, 8 * KILO - 1)] * 5
    assert not (tmp_path / "cache").exists()


def test_no_more_arrives_than_the_window_holds(server):
    """What is not read is not fetched either, beyond so many parts."""
    with_window = (1 + parts.WINDOW) + 1
    far = remote.Remote(server.url, connections=parts.CONNECTIONS, attempts=5)
    arriving = parts.in_order(far, far.size)
    taken = 0
    while taken <= 8 * KILO:
        taken += len(next(arriving))
    deadline = time.monotonic() + 30
    while len(server.ranges) < with_window and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)  # for what should not come
    arriving.close()
    assert len(server.ranges) == with_window


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"ETag": '"1"'}, {"ETag": '"2"'}),
        ({"ETag": 'W/"1"'}, {"ETag": 'W/"2"'}),
        (
            {"Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"},
            {"Last-Modified": "Thu, 01 Jan 2026 00:00:01 GMT"},
        ),
    ],
)
def test_another_file_at_the_same_address_is_noticed(fetch, server, tmp_path, before, after):
    server.headers = before
    with pytest.raises(WeightsUnreachable, match="changed while it was being fetched"):
        fetch(check=lambda _: setattr(server, "headers", after))
    assert list((tmp_path / "cache").iterdir()) == []


def test_another_size_is_noticed_without_a_validator(fetch, server, archive):
    server.headers = {}

    def replace(_):
        archive.write_bytes(ARCHIVE + bytes(512))

    with pytest.raises(WeightsUnreachable, match="changed while it was being fetched"):
        fetch(check=replace)


def test_damaged_bytes_end_everything_at_once(fetch, archive, tmp_path):
    damaged = bytearray(ARCHIVE)
    damaged[len(ARCHIVE) // 2] ^= 1
    archive.write_bytes(damaged)
    with pytest.raises(EngineArchiveCorrupt, match="SHA-256"):
        fetch()
    assert list((tmp_path / "cache").iterdir()) == []
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("weights")]


def test_what_other_threads_wait_for_ends_too(server, monkeypatch):
    """A stalled server does not hold up a start that has failed."""
    monkeypatch.setattr(limits, "SILENCE_SECONDS", 200)
    server.rate = 4 * KILO
    far = remote.Remote(server.url, connections=parts.CONNECTIONS, attempts=5)
    arriving = parts.in_order(far, far.size)
    next(arriving)
    began = time.monotonic()
    arriving.close()
    assert time.monotonic() - began < 60


@pytest.mark.parametrize(
    ("content_range", "said"),
    [
        (f"bytes 0-7/{len(ARCHIVE)}", "the bytes that arrived are not those asked for"),
        ("bytes 0-7/*", "does not say which bytes"),
        (None, "does not say which bytes"),
    ],
)
def test_an_answer_with_other_bytes_is_not_taken(fetch, monkeypatch, content_range, said):
    real = files._Handler.send_header

    def send_header(self, name, value):
        if name != "Content-Range":
            real(self, name, value)
        elif content_range:
            real(self, name, content_range)

    monkeypatch.setattr(files._Handler, "send_header", send_header)
    with pytest.raises(WeightsUnreachable, match=said):
        fetch()


class RedirectingServer(FileServer):
    authorizations: list[tuple[str, str | None]]
    left: int
    leads_to: str


class Redirecting(files._Handler):
    """Leads to a signed address, which holds for three requests, on another host name of the same server."""

    server: RedirectingServer

    def do_GET(self) -> None:
        self.server.authorizations.append((self.path, self.headers["Authorization"]))
        if self.path.startswith("/signed"):
            self.server.left -= 1
            if self.server.left >= 0:
                super().do_GET()
                return
            self.send_response(403)
        else:
            self.server.left = 3
            self.send_response(302)
            self.send_header(
                "Location", f"http://{self.server.leads_to}:{self.server.server_port}/signed?signature=secret"
            )
        self.send_header("Content-Length", "0")
        self.end_headers()


@pytest.fixture
def redirecting(server, monkeypatch):
    monkeypatch.setattr(parts, "CONNECTIONS", 1)
    monkeypatch.setattr("shared.http.reading.CONNECTIONS", 1)
    server.RequestHandlerClass = Redirecting
    server.authorizations = []
    server.leads_to = "localhost"
    return server


def test_an_address_that_expires_is_asked_for_anew(fetch, redirecting):
    assert_whole(fetch())
    asked = [path for path, _ in redirecting.authorizations]
    assert 5 < asked.count("/engine.tar") < asked.count("/signed?signature=secret")


def test_the_password_goes_to_its_own_host_only(fetch, redirecting):
    assert_whole(fetch(redirecting.url.replace("//", "//me:p%40ss@")))
    own = {value for path, value in redirecting.authorizations if path == "/engine.tar"}
    others = {value for path, value in redirecting.authorizations if path != "/engine.tar"}
    assert own == {"Basic bWU6cEBzcw=="}
    assert others == {None}


def test_the_password_is_sent_wherever_its_own_host_leads_on_itself(fetch, redirecting):
    redirecting.leads_to = "127.0.0.1"
    assert_whole(fetch(redirecting.url.replace("//", "//me:p%40ss@")))
    assert {value for _, value in redirecting.authorizations} == {"Basic bWU6cEBzcw=="}


def test_no_proxy_is_used_for_hosts_that_are_excepted(fetch, server, monkeypatch):
    monkeypatch.setenv("all_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert_whole(fetch())


def test_the_proxy_of_the_environment_is_used(fetch, server, monkeypatch):
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{server.server_port}")
    assert_whole(fetch("http://weights.invalid/engine.tar"))


@pytest.fixture
def tls(server):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.url = server.url.replace("http://", "https://")
    return server


def test_it_works_over_tls_with_cuts(fetch, tls, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    tls.cuts = [20 * KILO] * 10
    assert_whole(fetch(tls.url))
    assert tls.cuts == []


def test_a_certificate_that_nobody_trusts_is_refused_at_once(fetch, tls):
    with pytest.raises(WeightsUnreachable, match="certificate is not trusted"):
        fetch(tls.url)
    assert tls.ranges == []
