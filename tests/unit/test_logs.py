import json
import logging
import os
import sys
import time
import timeit
from contextlib import contextmanager
from contextvars import copy_context

import pytest
import structlog

from shared import logs
from shared.errors import SettingInvalid
from shared.logs import configure_logging, register_secret


@pytest.fixture(autouse=True)
def _restored(monkeypatch):
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    monkeypatch.setattr(logs, "_secrets", {})
    monkeypatch.delenv("LOG_LEVEL", raising=False)
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


@pytest.fixture
def lines(capsys):
    """What was logged since the last call, parsed."""
    return lambda: [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_an_event_is_one_json_line(lines):
    configure_logging()
    structlog.get_logger("runner").info("request done", request_id="r1", tokens=7)
    (line,) = lines()
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "request done",
        "request_id": "r1",
        "tokens": 7,
        "logger": "runner",
        "level": "info",
    }


def test_lines_are_written_once_when_configured_twice(lines):
    logging.basicConfig()
    configure_logging()
    configure_logging()
    structlog.get_logger().info("one")
    logging.getLogger("elsewhere").warning("two %d", 2)
    assert [line["event"] for line in lines()] == ["one", "two 2"]


@pytest.mark.parametrize(("level", "environment"), [("warning", "debug"), (None, "WARNING")])
def test_the_level_is_the_argument_then_the_environment(lines, monkeypatch, level, environment):
    monkeypatch.setenv("LOG_LEVEL", environment)
    configure_logging(level)
    log = structlog.get_logger()
    log.info("no")
    log.warning("yes")
    assert [line["event"] for line in lines()] == ["yes"]


def test_an_unknown_level_is_refused(monkeypatch):
    monkeypatch.setenv("LOG_LEVEL", "loud")
    with pytest.raises(SettingInvalid, match=r"LOG_LEVEL is 'loud', but it must be one of debug, info"):
        configure_logging()


def test_values_of_keys_that_name_secrets_are_masked(lines):
    configure_logging()
    structlog.get_logger().info("x", hf_token="hf_1", nested={"Password": "p", "input_token_count": 3})
    (line,) = lines()
    assert line["hf_token"] == "***"
    assert line["nested"] == {"Password": "***", "input_token_count": 3}


def test_registered_secrets_are_masked_everywhere(lines):
    configure_logging()
    register_secret("hf_abc")
    register_secret("hf_abc_and_more")
    log = structlog.get_logger()
    log.info("got hf_abc", where=["a hf_abc_and_more b"], error=ValueError("hf_abc"), inner={"hf_abc": 1})
    try:
        raise RuntimeError("with hf_abc")
    except RuntimeError:
        log.exception("failed")
        logging.getLogger("elsewhere").exception("foreign %s", "hf_abc")
    text = json.dumps(lines())
    assert "hf_abc" not in text
    assert "a *** b" in text
    assert "RuntimeError: with ***" in text


def test_ten_thousand_secrets_take_no_longer_than_ten(lines):
    configure_logging()
    log = structlog.get_logger()
    took = []
    for count in (10, 10_000):
        for number in range(count):
            register_secret(f"sk-{number:030}")
        took.append(min(timeit.repeat(lambda: log.info("an event", id="0" * 100), number=5, repeat=10)))
    assert took[1] < 10 * took[0]


def test_a_secret_from_a_file_is_masked_without_its_newline(lines):
    configure_logging()
    register_secret("hf_abc\n")
    structlog.get_logger().info("got hf_abc")
    assert "hf_abc" not in json.dumps(lines())


def test_a_terminal_gets_plain_lines_without_secrets(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    configure_logging()
    register_secret("hf_abc")
    secret = "hf_abc"
    try:
        raise RuntimeError(secret)
    except RuntimeError:
        structlog.get_logger().exception("failed")
    text = capsys.readouterr().err
    assert "failed" in text
    assert "RuntimeError: ***" in text
    assert "hf_abc" not in text


@pytest.mark.parametrize(("no_color", "is_coloured"), [("", True), ("1", False)])
def test_a_terminal_gets_colours_unless_it_wants_none(capsys, monkeypatch, no_color, is_coloured):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", no_color)
    configure_logging()
    structlog.get_logger().warning("hello")
    assert ("\x1b[" in capsys.readouterr().err) == is_coloured


def test_http_clients_do_not_log_addresses(lines):
    configure_logging()
    logging.getLogger("httpx2").info("GET https://x/?signature=1")
    assert lines() == []


def test_a_blank_secret_is_none(lines):
    configure_logging()
    register_secret(" ")
    structlog.get_logger().info("a b")
    assert lines()[0]["event"] == "a b"


def raw_lines(capsys):
    return capsys.readouterr().err.splitlines(keepends=True)


@pytest.mark.parametrize(
    "event",
    [
        {"event": "x" * 1_000_000},
        {"event": "prompt", "prompt": "\N{GRINNING FACE}" * 100_000},
        {"event": "many", "values": list(range(1_000_000))},
        {"event": "nested", "inner": {str(n): ["y" * 10_000] * 10 for n in range(1000)}},
        {"event": "keys", **{f"key_{n}": "z" * 5000 for n in range(5000)}},
        {"event": "\0" * 5000, "request_id": "\N{GRINNING FACE}" * 500, "key": "\x7f" * 1000},
    ],
)
def test_no_line_is_longer_than_a_pipe_takes_in_one_piece(capsys, event):
    configure_logging()
    structlog.get_logger().error(**event)
    (line,) = raw_lines(capsys)
    assert len(line.encode()) <= 4096
    parsed = json.loads(line)
    assert parsed["level"] == "error"
    assert "left out" in line or "left_out" in parsed


def test_what_a_line_leaves_out_is_said(lines):
    configure_logging()
    structlog.get_logger().info("x", text="y" * 100_000)
    (line,) = lines()
    kept, _, mark = line["text"].partition(" ")
    assert mark == f"[{100_000 - len(kept)} characters left out]"
    assert len(kept) == 3072


def test_a_traceback_keeps_its_end(lines):
    configure_logging()

    def again(depth):
        fail(depth)

    def fail(depth):
        if depth:
            (fail if depth % 2 else again)(depth - 1)
        raise RuntimeError("the " + "reason " * 30)

    try:
        fail(60)
    except RuntimeError:
        structlog.get_logger().exception("failed")
        logging.getLogger("asyncio").exception("failed")
    for line in lines():
        assert line["exception"].startswith("[")
        assert line["exception"].endswith("RuntimeError: the " + "reason " * 30)
        assert line["event"] == "failed"


def test_what_is_cut_holds_no_part_of_a_secret(capsys):
    configure_logging()
    secret = "hf_" + "s" * 500
    register_secret(secret)
    log = structlog.get_logger()
    for before in range(3000, 6000, 100):
        log.info("x", text="a" * before + secret * 3 + "b" * 9000)
        try:
            raise RuntimeError("a" * 9000 + secret * 3 + "b" * before)
        except RuntimeError:
            log.exception("failed")
    assert "hf_" not in (text := capsys.readouterr().err)
    assert "sss" not in text


def test_a_text_of_16_mb_is_logged_in_little_time(capsys):
    configure_logging()
    for number in range(10):
        register_secret("sk-" + "x" * (30 + number))
    text = "a prompt " * (16 << 17)
    took = min(timeit.repeat(lambda: structlog.get_logger().info("prompt", prompt=text), number=1, repeat=3))
    assert took < 0.25


def test_lines_of_one_client_are_bounded(lines):
    configure_logging()

    def flood():
        logs.bind_client("a")
        for number in range(1000):
            structlog.get_logger().info("no", number=number)

    copy_context().run(flood)
    structlog.get_logger().info("of nobody")
    written = [line["event"] for line in lines()]
    assert 100 <= len(written) < 120
    assert written[-1] == "of nobody"
    configure_logging()  # at the latest at the end, the rest is told
    left_out = 1000 - (len(written) - 1)
    assert lines()[0]["event"].startswith(f"log lines were left out: {left_out},")


@contextmanager
def pipe():
    """The end to read of a pipe that is standard error. Not as a fixture: pytest sets it after these."""
    reading, writing = os.pipe()
    with (
        os.fdopen(writing, "w") as stderr,
        os.fdopen(reading, "rb", buffering=0) as reader,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(sys, "stderr", stderr)
        yield reader


def test_a_pipe_that_nobody_reads_delays_nothing_and_its_reader_is_told_later():
    with pipe() as reader:
        configure_logging()
        log = logging.getLogger("x")
        began = time.monotonic()
        for number in range(5000):
            log.warning("%d %s", number, "x" * 1000)
        assert time.monotonic() - began < 10
        written = reader.read(1 << 20).splitlines()
        log.warning("back")
        notice, back = map(json.loads, reader.read(1 << 20).splitlines())
        assert os.get_blocking(sys.stderr.fileno()), "others share it"
    assert notice["event"] == f"log lines were lost here, since nothing took them: {5000 - len(written)}"
    assert back["event"] == "back"


def test_a_reader_that_is_gone_ends_nothing():
    with pipe() as reader:
        configure_logging()
        reader.close()
        logging.getLogger("x").warning("nobody hears")


def test_a_stream_that_only_looks_like_a_file_is_written_to(monkeypatch):
    class Stream:
        """As in a worker of Cog's, which looks up the prediction that writes."""

        written = ""

        def fileno(self):
            return 2

        def isatty(self):
            return False

        def write(self, text):
            self.written += text

    monkeypatch.setattr(sys, "stderr", stream := Stream())
    configure_logging()
    logging.getLogger("x").warning("hello")
    assert json.loads(stream.written)["event"] == "hello"
