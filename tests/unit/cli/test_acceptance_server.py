"""The server that `cog-triton acceptance` starts and asks."""

from cli.acceptance import server
from tests.support.loopback import LoopbackServer, QuietHandler


class _Ready(QuietHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"status": "READY"}')


def test_no_proxy_is_asked_for_it(monkeypatch, tmp_path):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: None)
    with LoopbackServer(_Ready) as there:
        monkeypatch.setattr(server, "free_port", lambda: there.server_port)
        assert server.Server(tmp_path, tmp_path, {}).is_ready()
