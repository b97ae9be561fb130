"""A hub that lies about what it sends: sizes, compression, and where files are."""

from contextlib import suppress
from email.message import Message
from typing import ClassVar

import pytest

from builder.sources import hub_limits, parameters
from builder.sources.download import Download
from builder.sources.parameters import config_of, parameters_of
from shared.errors import DownloadFailed, ModelCorrupt
from tests.support.hub import STRANGE
from tests.support.loopback import LoopbackServer, QuietHandler

_FEW = 64 << 20  # bytes that may be on their way when a client hangs up


def parameters_in_it(model, revision, token):
    return parameters.parameters_in(model, ["model.safetensors"], revision, token)


def fetch(state):
    Download("someone/tiny").run(state, lambda _done, _total=None: None)


@pytest.mark.parametrize("path", ["/api/models/", "/resolve/"])
def test_what_comes_compressed_is_not_unpacked(hub, state, path):
    """Half a megabyte of gzip took 1 GB of memory."""
    hub.compressing = path
    with pytest.raises(DownloadFailed, match="the hub compresses its answers, though it is asked not to"):
        fetch(state)


def test_an_answer_of_small_values_has_a_limit(hub, state, monkeypatch):
    """Within the limit of bytes, empty lists took 1.4 GB."""
    monkeypatch.setattr(hub_limits, "_MAX_VALUES", 10_000)
    hub.claims["body"] = "[" + "[]," * 20_000 + "[]]"
    with pytest.raises(DownloadFailed, match="what the hub says of the model has no end"):
        fetch(state)


@pytest.mark.parametrize(
    ("path", "error", "told"),
    [
        ("/config.json", DownloadFailed, "sends more of a file than it says that the file has"),
        ("/stored/", ModelCorrupt, r"model\.safetensors"),
    ],
)
def test_a_file_takes_no_more_room_than_the_hub_says(hub, state, tmp_path, path, error, told):
    """It filled the disk."""
    hub.endless = path
    with pytest.raises(error, match=told):
        fetch(state)
    assert hub.sent_endlessly < _FEW
    assert sum(file.stat().st_size for file in (tmp_path / "cache").rglob("*") if file.is_file()) < _FEW


@pytest.mark.parametrize(
    ("path", "ask"),
    [("/stored/", parameters_of), ("/stored/", parameters_in_it), ("/config.json", config_of)],
)
def test_a_check_reads_no_more_than_it_asks_for(hub, monkeypatch, path, ask):
    """The first went to the memory, whole; the last to the disk."""
    monkeypatch.setattr(parameters, "MAX_BYTES", 1 << 20)
    hub.endless = path
    with pytest.raises(hub_limits.AnswerTooLong):
        ask("someone/tiny", None, None)
    assert hub.sent_endlessly < _FEW


@pytest.mark.parametrize("place", ["file:///etc/passwd", "ftp://127.0.0.1/x", "//"])
def test_a_file_that_is_said_to_be_elsewhere(hub, state, place):
    hub.claims["Location"] = place
    with pytest.raises(DownloadFailed):
        fetch(state)


class _Elsewhere(QuietHandler):
    asked: ClassVar[list[Message]] = []

    def do_GET(self):
        self.asked.append(self.headers)
        self.send_response(200)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"secret")


def test_what_another_server_answers_is_not_taken_for_the_file(hub, state, model_dir, tmp_path):
    """A hub can have this machine ask where the hub itself cannot: it gets no token, and nothing is kept."""
    hub.repositories["someone/tiny"].token, state.hf_token = "hf_secret", "hf_secret"
    _Elsewhere.asked.clear()
    with LoopbackServer(_Elsewhere) as other:
        hub.claims["Location"] = f"{other.url}/latest/meta-data"
        with pytest.raises(ModelCorrupt):
            fetch(state)
    assert _Elsewhere.asked
    assert not any("authorization" in headers for headers in _Elsewhere.asked)
    assert not any(path.read_bytes() == b"secret" for path in (tmp_path / "cache").rglob("*/blobs/*"))


NAMES = [
    "../model-x.safetensors",
    "/tmp/model-x.safetensors",
    "original/../../model-x.safetensors",
    "..",
    "model-\0x.safetensors",
    "model-..\\..\\x.safetensors",
    "model-%2e%2e%2fx.safetensors",
    "model-" + "x" * 5000 + ".safetensors",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_leads_nowhere(hub, state, tmp_path, name):
    """Such files are not taken, or are files in the model's folder like any other, or the model is refused."""
    hub.also_lists = [name]
    before = {path for path in tmp_path.rglob("*") if not path.is_relative_to(tmp_path / "cache")}
    with suppress(DownloadFailed):
        fetch(state)
    after = {path for path in tmp_path.rglob("*") if not path.is_relative_to(tmp_path / "cache")}
    assert after == before
    strange = [
        path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.read_bytes() == STRANGE
    ]
    assert {path.parent.parent.name for path in strange} <= {"snapshots", "models--someone--tiny"}
