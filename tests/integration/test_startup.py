"""A runner that cannot start says why, with a code, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
from pathlib import Path

import pytest

from builder.pipeline import build
from demo.cog_server import CogServer
from shared.cog.server import free_port
from shared.errors import CogTritonError, PortInUse, ServerNotReady
from shared.layout import PROJECT_ROOT
from tests.integration.conftest import unpacked
from tests.support.processes import MARK, wait_gone
from tests.support.tensorrt_llm_engine import runner_environment

MODEL = Path(__file__).parents[2] / "demo/model"


def with_member(archive: Path, name: str) -> bytes:
    """The archive, with a file of this name put in after its manifest."""
    stream = io.BytesIO()
    with tarfile.open(archive) as good, tarfile.open(fileobj=stream, mode="w") as bad:
        manifest, *_ = good.getmembers()
        bad.addfile(manifest, good.extractfile(manifest))
        member = tarfile.TarInfo(name)
        member.size = 4
        bad.addfile(member, io.BytesIO(b"evil"))
    return stream.getvalue()


@pytest.fixture
def start(tmp_path):
    """`start(setting=value, ...)`: the text with which the set-up of a runner fails."""

    def run(**environment: str) -> str:
        mark = os.urandom(8).hex()
        cache = tmp_path / "cache"
        settings = {MARK: mark, "ENGINE_ENVIRONMENT": MARK, "WEIGHTS_CACHE": str(cache), **environment}
        with (
            (tmp_path / "log").open("wb") as log,
            CogServer("runner", environment=settings, output=log.fileno()) as server,
            pytest.raises(CogTritonError) as failed,
        ):
            server.wait_ready(60)
        assert wait_gone(mark) == {}
        assert not list(cache.glob("*"))
        # A front that cannot even begin says so in the log alone.
        return str(failed.value) + (tmp_path / "log").read_text()

    return run


def test_without_weights(start):
    assert start().startswith("E4202 WeightsNotSet: ")


def test_weights_that_are_not_there(start):
    assert "E4201 WeightsNotFound" in start(COG_WEIGHTS="/nowhere/engine.tar")


def test_a_model_of_the_hub_that_no_engine_here_serves(start):
    assert "E4103 EngineKindMismatch" in start(COG_WEIGHTS="someone/tiny", HF_ENDPOINT="http://127.0.0.1:1")


def test_an_unreachable_url(start):
    assert "E4200 WeightsUnreachable" in start(COG_WEIGHTS="http://127.0.0.1:1/engine.tar")


def test_a_truncated_archive(start, mock_archive, tmp_path):
    archive = tmp_path / "engine.tar"
    archive.write_bytes(mock_archive().read_bytes()[:50_000])
    assert "E4100 EngineArchiveMalformed" in start(COG_WEIGHTS=str(archive))


def test_an_archive_that_leaves_its_directory(start, mock_archive, tmp_path):
    (tmp_path / "engine.tar").write_bytes(with_member(mock_archive(), "../evil"))
    assert "E4101 EngineArchiveUnsafe" in start(COG_WEIGHTS=str(tmp_path / "engine.tar"))
    assert not list(tmp_path.rglob("evil"))


def test_an_engine_that_cannot_be_loaded(start, tmp_path):
    (tmp_path / "config.yaml").write_text(f"engine: ctranslate2\nmodel: {MODEL}\n")
    build(str(tmp_path / "config.yaml"), tmp_path / "engine.tar")
    engine = unpacked(tmp_path / "engine.tar", tmp_path)
    (engine / "engine/model.bin").write_bytes(b"no model")
    assert "E2300 CTranslate2Error" in start(ENGINE_DIR=str(engine))


def test_an_engine_that_is_loaded_and_fails_on_each_request(start, mock_archive, tmp_path):
    engine = unpacked(mock_archive(), tmp_path)
    script = json.loads((engine / "engine/mock.json").read_text())
    unknown = 0  # what the mock's tokenizer makes of any word, as that of the first request
    (engine / "engine/mock.json").write_text(json.dumps({**script, "error_id": unknown}))
    assert start(ENGINE_DIR=str(engine)).startswith("E2405 EngineInternalError: ")


def test_a_port_that_is_taken(tmp_path, start):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(PortInUse):
            CogServer("runner", port=taken.getsockname()[1])
        with tempfile.TemporaryDirectory() as temporary:
            text = start(PORT=str(taken.getsockname()[1]), TMPDIR=temporary)
            assert f"E4003 PortInUse: Port {taken.getsockname()[1]}" in text
            assert not list(Path(temporary).iterdir())


def test_a_port_that_is_none(start):
    text = start(PORT="70000")
    assert text.startswith(str(ServerNotReady(reason="it ended with status 1")))
    assert "E4002 SettingInvalid: The setting PORT is '70000'" in text


def serve(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`cog-triton serve`, which must end by itself."""
    command = [sys.executable, "-m", "cli", "serve", *arguments]
    return subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("nothing.tar", "E4201 WeightsNotFound"),
        ("notes.txt", "E4100 EngineArchiveMalformed"),
        ("config.yaml", "E3003 ConfigDuplicateKey"),
    ],
)
def test_serve_of_a_file_that_is_no_engine_ends_with_the_reason(tmp_path, name, error):
    for text in ("notes.txt", "config.yaml"):
        (tmp_path / text).write_text("engine: mock\n" * 100)
    done = serve(str(tmp_path / name), "--port", str(free_port()))
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if error in line]
    assert line.startswith(error)
    assert "Traceback" not in done.stderr


def test_serve_of_a_link_to_itself_ends_with_the_reason(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    done = serve(str(tmp_path / "loop"), "--port", str(free_port()))
    assert done.returncode == 1
    assert done.stderr.startswith("E4200 WeightsUnreachable: ")


KEY_NEEDED = {"API_KEYS": "sk-1", "COG_API_NEEDS_KEY": "true"}


def test_serve_on_a_port_that_is_none():
    done = serve("engine.tar", "--port", "70000")
    assert done.returncode == 2
    assert "65535" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("settings", "more"),
    [({}, " -H 'Accept:"), (KEY_NEEDED, ' -H "Authorization: Bearer $API_KEY" -H \'Accept:')],
)
def test_serve_at_a_terminal_says_where_to_send_a_prompt(mock_archive, tmp_path, settings, more):
    port = free_port()
    near, far = os.openpty()
    environment = {**os.environ, "WEIGHTS_CACHE": str(tmp_path), "COLUMNS": "200", **settings}
    command = [sys.executable, "-m", "cli", "serve", str(mock_archive())]
    with subprocess.Popen(
        [*command, "--port", str(port)], cwd=PROJECT_ROOT, env=environment, stdin=far, stdout=far, stderr=far
    ) as process:
        os.close(far)
        text = ""
        try:
            while f"curl -N http://127.0.0.1:{port}/predictions{more}" not in text:
                text += os.read(near, 1 << 12).decode()
            assert f"Ready: http://127.0.0.1:{port}." in text
            assert "CudaDriverHelper" not in text
            assert "pinned" not in text
        finally:
            process.send_signal(signal.SIGINT)
            threading.Thread(target=drained, args=(near,), daemon=True).start()
            assert process.wait(30) == 0


def drained(terminal: int) -> None:
    """Read what nobody looks at, so that its writer does not wait."""
    with contextlib.suppress(OSError):
        while os.read(terminal, 1 << 12):
            pass


@pytest.fixture
def engine_dir(mock_archive, tmp_path):
    return str(unpacked(mock_archive(), tmp_path))


def test_a_world_size_that_is_not_the_engines(start, engine_dir):
    text = start(ENGINE_DIR=engine_dir, WORLD_SIZE="2")
    assert "E4002 SettingInvalid: The setting WORLD_SIZE is 2" in text


def test_a_setting_that_is_not_valid_is_told_once(start, tmp_path):
    start(RESPONSE_TIMEOUT="soon")
    assert (tmp_path / "log").read_text().count("E4002 SettingInvalid") == 1


@pytest.mark.parametrize(
    ("setting", "value", "reason"),
    [
        ("METRICS_NEED_KEY", "true", "neither API_KEYS nor API_KEYS_FILE is set"),
        ("PROMPT_TEMPLATE", "Hello", "it is not a valid template: it lacks {prompt}"),
        ("LOG_LEVEL", "loud", "it must be one of debug, info, warning, error, critical"),
    ],
)
def test_a_setting_that_the_front_refuses_ends_the_runner(start, engine_dir, setting, value, reason):
    text = start(ENGINE_DIR=engine_dir, **{setting: value})
    assert f"E4002 SettingInvalid: The setting {setting} is '{value}', but {reason}." in text
    assert "it ended with status 1" in text
    for later in ("E4005", "E4008", "Traceback"):
        assert later not in text


def test_a_server_parameter_of_the_config_file_that_the_engine_refuses(start, tmp_path):
    config = {"instantiate": {"server": {"tensorrt_llm": {"args": {"kv_cache_free_gpu_mem_fraction": 7}}}}}
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    settings = runner_environment(tmp_path) | {"COG_TRITON_CONFIG": str(tmp_path / "config.yaml")}
    assert "E2505 ServerParameterInvalid: The parameter kv_cache_free_gpu_mem_fraction" in start(**settings)
