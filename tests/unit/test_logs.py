import json
import logging
import sys
import timeit

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
