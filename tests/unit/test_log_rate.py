import logging
from contextvars import copy_context

import pytest

from shared import log_rate
from shared.log_rate import BURST, LINES_PER_SECOND, ClientRate, bind_client, client_at


class Clock:
    now = 0.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(log_rate, "time", clock)
    return clock


class Log:
    def __init__(self):
        self.records: list[logging.LogRecord] = []
        self.rate = ClientRate(self.records.append)

    def told(self):
        return [record.getMessage() for record in self.records]

    def __call__(self, client: str | None, lines: int, name="runner", level=logging.INFO) -> int:
        """How many of these lines a client may write."""
        record = logging.makeLogRecord({"name": name, "levelno": level})

        def run():
            if client is not None:
                bind_client(client)
            return sum(map(self.rate.filter, [record] * lines))

        return copy_context().run(run)


@pytest.fixture
def log(clock):
    log = Log()
    yield log
    if log.rate._timer is not None:
        log.rate._timer.cancel()


def test_a_client_has_a_burst_and_then_a_rate(log, clock):
    assert log("a", 1000) == BURST
    assert log("b", 50) == 50
    clock.now += 2
    assert log("a", 1000) == 2 * LINES_PER_SECOND
    clock.now += 3600
    assert log("a", 1000) == BURST


def test_lines_that_no_client_causes_always_pass(log):
    log("a", 1000)
    assert log(None, 10_000) == 10_000


@pytest.mark.parametrize("logger", ["uvicorn.error", "asyncio"])
def test_what_libraries_say_of_unknown_clients_counts_as_one(log, logger):
    assert log(None, 1000, logger, logging.WARNING) == BURST
    assert log(None, 1000, logger, logging.INFO) == 1000


def test_the_rest_is_counted_and_told_once(log):
    log("a", 1000)
    log("b", 101)
    log("c", 100)
    log.rate.report()
    log.rate.report()
    assert log.told() == [
        "log lines were left out: 901, of clients that caused more than 20 a second (a: 900, b: 1)"
    ]


def test_a_report_comes_by_itself(log, monkeypatch):
    monkeypatch.setattr(log_rate, "_REPORT_SECONDS", 0.2)
    log("a", 1000)
    log.rate._timer.join(5)
    (text,) = log.told()
    assert "left out: 900" in text


def test_only_so_many_clients_are_remembered_and_no_count_is_lost(log, monkeypatch):
    monkeypatch.setattr(log_rate, "_MAX_CLIENTS", 10)
    log("flooding", 1000)
    for number in range(100):
        log(f"client {number}", 1)
    assert len(log.rate._shares) == 10
    log.rate.report()
    assert "left out: 900" in log.told()[0]


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("a:socket", "a:socket"),
    ],
)
def test_who_has_an_address_of_ipv6_has_its_network(address, client):
    assert client_at(address) == client
