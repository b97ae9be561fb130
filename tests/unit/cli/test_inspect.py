import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from typer.testing import CliRunner

from cli.inspect import manifest_of
from cli.main import app
from shared.artifact import Manifest, PackedFile, write_archive
from shared.errors import EngineArchiveMalformed, WeightsNotFound, WeightsUnreachable
from tests.unit.artifact.archives import FACTS

CONFIG = PackedFile("config.json", b"{}")


class Web:
    """Serves one file; counts the bytes of it that it sent."""

    def __init__(self, content: bytes, *, knows_ranges: bool) -> None:
        self.content = content
        self.knows_ranges = knows_ranges
        self.ranges: list[str] = []
        self.sent = 0


def handler(web: Web):
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            if self.path.startswith("/none"):
                self.send_error(404)
                return
            body = web.content
            if web.knows_ranges:
                web.ranges.append(self.headers["Range"])
                first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
                if int(first) >= len(body):
                    self.send_error(416)
                    return
                body = body[int(first) : int(last) + 1]
            self.send_response(206 if web.knows_ranges else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            for start in range(0, len(body), 1 << 16):
                try:
                    self.wfile.write(body[start : start + (1 << 16)])
                except OSError:  # the client has enough
                    return
                web.sent += len(body[start : start + (1 << 16)])

    return Handler


@contextmanager
def serving(content: bytes, *, knows_ranges: bool = True):
    web = Web(content, knows_ranges=knows_ranges)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(web))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield web, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def archive(tmp_path) -> tuple[bytes, Manifest]:
    """An engine of 32 MB and its manifest."""
    engine = PackedFile("engine/rank0.engine", bytes(32 << 20))
    manifest = write_archive(tmp_path / "engine.tar", FACTS, [CONFIG, engine])
    return (tmp_path / "engine.tar").read_bytes(), manifest


def test_only_the_first_range_is_fetched(archive):
    content, manifest = archive
    with serving(content) as (web, url):
        assert manifest_of(f"{url}/engine.tar?signature=x") == manifest
    assert web.ranges == ["bytes=0-65535"]
    assert web.sent == 65536


def test_a_long_manifest_takes_more_ranges(tmp_path):
    files = [CONFIG, *(PackedFile(f"engine/{number:04}.bin", b"") for number in range(3000))]
    manifest = write_archive(tmp_path / "engine.tar", FACTS, files)
    content = (tmp_path / "engine.tar").read_bytes()
    with serving(content) as (web, url):
        assert manifest_of(url) == manifest
    assert web.ranges[:2] == ["bytes=0-65535", "bytes=65536-327679"]
    assert web.sent < len(content)


def test_a_server_without_ranges_is_left_early(archive):
    content, manifest = archive
    with serving(content, knows_ranges=False) as (web, url):
        assert manifest_of(url) == manifest
    assert web.sent < len(content) // 2


def test_an_archive_that_is_cut(archive):
    with (
        serving(archive[0][:700]) as (_, url),
        pytest.raises(EngineArchiveMalformed, match=r"middle of a file|cut short"),
    ):
        manifest_of(url)


def test_a_missing_archive_hides_the_signature():
    with serving(b"") as (_, url), pytest.raises(WeightsUnreachable, match="answered 404") as caught:
        manifest_of(f"{url}/none.tar?signature=secret")
    assert "secret" not in str(caught.value)


def test_no_server():
    with pytest.raises(WeightsUnreachable, match="ConnectError"):
        manifest_of("http://127.0.0.1:9/engine.tar")


def test_no_file(tmp_path):
    with pytest.raises(WeightsNotFound):
        manifest_of(str(tmp_path / "none.tar"))


def test_the_command_prints_it(archive, tmp_path):
    printed = CliRunner().invoke(app, ["inspect", str(tmp_path / "engine.tar")])
    assert Manifest.from_bytes(printed.stdout.encode()) == archive[1]
