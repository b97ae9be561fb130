"""The page of loads on a GPU: made from the reports, with what is worse than the peer in bold."""

from __future__ import annotations

import json

from tests.gpu.workloads.figures import figures_of
from tests.gpu.workloads.http_client import Played
from tests.gpu.workloads.page import PAGE, REPORTS, page


def test_the_page_is_made_from_the_reports():
    reports = [json.loads(path.read_text()) for path in sorted(REPORTS.glob("*.json"))]
    assert reports
    assert PAGE.read_text() == page(reports), "run `python -m tests.gpu.workloads.page`"


def test_a_first_token_counts_from_when_its_request_was_due():
    played = [
        Played(turn=1, due=10.0, first=10.1, ended=12.0, tokens=30, status=200),
        Played(turn=2, due=12.0, first=12.3, ended=14.0, tokens=10, status=200),
        Played(turn=2, due=12.0, first=None, ended=13.0, tokens=0, status=503),
    ]
    figures = figures_of(played, 4.0)
    assert (figures["requests"], figures["not_whole"], figures["tokens"]) == (3, 1, 40)
    assert figures["tokens_per_second"] == 10
    assert figures["first_by_turn"] == {1: 100.0, 2: 300.0}
    assert figures["first"] == {"p50": 100.0, "p99": 100.0}


def figure(side, first, cpu, rate=1000.0):
    return {
        "side": side,
        "load": "burst",
        "title": "2 at once",
        "not_whole": 0,
        "tokens_per_second": rate,
        "first": {"p50": first, "p99": first},
        "first_by_turn": {"1": first},
        "cpu_us_per_token": {"front": cpu, "engine core": 500.0},
    }


def test_what_is_worse_than_the_peer_is_bold_and_noise_is_not():
    machine = {
        "side": "machine",
        "gpu_and_driver": "G",
        "date": "D",
        "vllm": "1",
        "torch": "2",
        "python": "3",
        "cores": 4,
    }
    text = page([[machine, figure("runner, openai", 104, 30), figure("serve_rust", 100, 20)]])
    assert "| cog-triton, OpenAI's API | 1,000 | 104 / 104 | **30** | 0 |" in text
    assert "| `vllm serve`, Rust front | 1,000 | 100 / 100 | 20 | 0 |" in text
    text = page([[machine, figure("runner, cog", 120, 20, 900), figure("serve_rust", 100, 20)]])
    assert "| cog-triton, Cog's API | **900** | **120** / **120** | 20 | 0 |" in text
