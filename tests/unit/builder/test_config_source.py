import base64

import pytest

from builder.sources.config import MAX_CONFIG_BYTES, read_config, shown
from shared.errors import ConfigNotYaml, ConfigTooLarge, ConfigUnreachable
from tests.support.loopback import LoopbackServer, QuietHandler

TEXT = "engine: mock  # größer\n"


class Pages(QuietHandler):
    def do_GET(self):
        path = self.path.partition("?")[0]
        if path.startswith("/hops/"):
            left = int(path.removeprefix("/hops/"))
            return self.send(302, b"", f"/hops/{left - 1}" if left else "/config.yaml")
        if path == "/elsewhere":
            return self.send(302, b"", "file:///etc/hostname")
        if path == "/large":
            return self.send(200, b"#" * (MAX_CONFIG_BYTES + 1))
        if path == "/config.yaml":
            return self.send(200, TEXT.encode())
        return self.send(404, b"no")

    def send(self, status, body, location=None):
        self.send_response(status)
        if location:
            self.send_header("Location", location)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture(scope="module")
def web():
    with LoopbackServer(Pages) as server:
        yield server.url


def test_path(tmp_path):
    (tmp_path / "config.yaml").write_text(TEXT)
    assert read_config(str(tmp_path / "config.yaml")) == TEXT


def test_file_url_with_escapes(tmp_path):
    (tmp_path / "my config.yaml").write_text(TEXT)
    assert read_config(f"file://{tmp_path}/my%20config.yaml") == TEXT


@pytest.mark.parametrize(
    "url",
    [
        "data:text/yaml;base64," + base64.b64encode(TEXT.encode()).decode(),
        "data:;base64," + base64.b64encode(TEXT.encode()).decode().replace("=", "%3D"),
        "data:text/yaml;charset=utf-8,engine:%20mock%20%20%23%20gr%C3%B6%C3%9Fer%0A",
        "data:,engine: mock  # größer\n",
    ],
)
def test_data_url(url):
    assert read_config(url) == TEXT


def test_http(web):
    assert read_config(f"{web}/config.yaml?signature=abc") == TEXT


def test_follows_ten_redirects(web):
    assert read_config(f"{web}/hops/9") == TEXT


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/hops/10", "more than 10 times"),
        ("/elsewhere", "redirects to something that is not a valid http:// or https:// URL"),
        ("/missing", "answered 404"),
    ],
)
def test_http_refusals(web, path, reason):
    with pytest.raises(ConfigUnreachable, match=reason):
        read_config(web + path)


def test_nobody_listens():
    with pytest.raises(ConfigUnreachable, match=r"no connection \(Connection refused\)"):
        read_config("http://127.0.0.1:9/config.yaml")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("ftp://host/config.yaml", "ftp: is not supported"),
        ("file://otherhost/config.yaml", "can only name files on this machine"),
        ("/no/such/config.yaml", "no such file"),
        ("/", "it is a directory"),
        ("data:text/yaml", "no comma"),
        ("data:;base64,@@@", "not base64"),
        ("http://[::1/config.yaml", "not a valid URL"),
        ("a\0b", "no such file"),
        ("x" * 5000, "too long"),
    ],
)
def test_unreadable_sources(source, reason):
    with pytest.raises(ConfigUnreachable, match=reason):
        read_config(source)


def test_too_large_from_a_file(tmp_path):
    (tmp_path / "config.yaml").write_bytes(b"#" * (MAX_CONFIG_BYTES + 1))
    with pytest.raises(ConfigTooLarge):
        read_config(str(tmp_path / "config.yaml"))


def test_too_large_from_http(web):
    with pytest.raises(ConfigTooLarge):
        read_config(f"{web}/large")


def test_largest_that_is_read(tmp_path):
    (tmp_path / "config.yaml").write_bytes(b"#" * MAX_CONFIG_BYTES)
    assert len(read_config(str(tmp_path / "config.yaml"))) == MAX_CONFIG_BYTES


def test_not_utf8(tmp_path):
    (tmp_path / "config.yaml").write_bytes(b"a: \xff")
    with pytest.raises(ConfigNotYaml, match="byte 3 is not UTF-8"):
        read_config(str(tmp_path / "config.yaml"))


def test_errors_hide_credentials_and_queries():
    with pytest.raises(ConfigUnreachable) as caught:
        read_config("http://me:hunter2@127.0.0.1:9/config.yaml?signature=abc#part")
    assert "http://127.0.0.1:9/config.yaml " in str(caught.value)
    assert not any(secret in str(caught.value) for secret in ("hunter2", "signature", "part"))


def test_inline_content_is_not_shown():
    assert shown("data:,engine: mock") == "(data: URL)"


def test_long_sources_are_cut():
    assert len(shown("x" * 10_000)) < 300


def test_an_empty_name_is_no_directory():
    with pytest.raises(ConfigUnreachable, match=r"The config \(empty\) cannot be read: it has no name\."):
        read_config("")
