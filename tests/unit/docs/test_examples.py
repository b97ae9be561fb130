"""The programs that the pages show do what is said of them where tests/docs, whose engine writes numbers, cannot tell."""

from __future__ import annotations

import subprocess
import sys

from runner.front.cog.prediction import output_event
from shared.layout import PROJECT_ROOT
from tests.docs.pages import blocks
from tests.support.loopback import LoopbackServer, QuietHandler

# In UTF-8 it has 0x85, which ends a line in Latin-1; the last character ends one in any text.
TEXT = "naïve Ångström, 東京, 🦊\u2028"


class _OneAnswer(QuietHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(output_event(0, TEXT))


def test_the_client_of_cogs_api_prints_every_character_as_it_was_sent(tmp_path):
    page = (PROJECT_ROOT / "docs/cog-api.md").read_text()
    (program,) = ("\n".join(block.lines) for block in blocks("cog-api.md", page) if block.file == "stream.py")
    with LoopbackServer(_OneAnswer) as server:
        (tmp_path / "stream.py").write_text(program.replace("http://localhost:5000", server.url))
        command = [sys.executable, "-X", "utf8", str(tmp_path / "stream.py")]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60, check=False)
    assert (done.stdout, done.stderr) == (TEXT, "")
