"""The page: whole, readable without a network, and safe whatever a server says."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from cli.perf import findings
from cli.perf.charts import _round_steps
from cli.perf.page import write_page
from cli.perf.terminal import print_report
from shared.layout import PROJECT_ROOT
from tests.unit.cli.perf.test_figures import answered, figures_of, load_of, several

HOSTILE = '<script>alert(1)</script> & "quotes" <!-- \''


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.text, self.addresses = [], "", []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href", "xlink:href", "srcset")]

    def handle_data(self, data):
        self.text += data


def result_of(*loads, **limits):
    steps = [figures_of(load, **limits) | {"server": None} for load in loads]
    found = [*findings.of_requests(loads), *findings.of_steps(steps, limits)]
    return {
        "cog_triton": "1.2.3",
        "url": "http://server",
        "api": "Cog's API",
        "command": "cog-triton perf",
        "date": "2026-01-01",
        "machine": {"system": "Linux", "cores": 2},
        "asked": {"output_tokens": 100, "tokens_per_second": None},
        "sentence": findings.sentence(steps),
        "findings": [one.view() for one in found],
        "steps": steps,
    }


def page_of(tmp_path, *loads, **limits):
    write_page(result_of(*loads, **limits), tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text()
    reader = _Reader()
    reader.feed(html)
    return html, reader


def test_tokens_that_nobody_could_count_are_not_called_there(tmp_path):
    report = result_of(load_of(several(1)))
    streamed = "No failures, no stalls, no late first tokens"
    for lost, told in ((0, f"{streamed}, no lost tokens."), (None, f"{streamed}.")):
        report["steps"][0]["tokens"]["lost"] = lost
        write_page(report, tmp_path / "report.html")
        assert told in (tmp_path / "report.html").read_text()
    report["steps"][0]["time_to_first_token"] = None  # with --output_method wait
    write_page(report, tmp_path / "report.html")
    assert ">No failures.<" in (tmp_path / "report.html").read_text()


def test_an_address_in_brackets_is_printed_as_it_is(capsys):
    print_report(result_of(load_of(several(1))) | {"url": "http://[fd00::1]:5000"})
    assert capsys.readouterr().out.startswith("http://[fd00::1]:5000, asked through Cog's API for 100 tokens")


def test_one_error_of_the_server_is_one_error(capsys):
    report = result_of(load_of(several(1)))
    report["steps"][0]["server"] = {"requests": 2.0, "errors": 1.0}
    print_report(report)
    assert "counted by the server: 2 requests, 1 error " in capsys.readouterr().out


def test_one_core_is_one_core(tmp_path):
    write_page(result_of() | {"machine": {"system": "Linux", "cores": 1}}, tmp_path / "report.html")
    assert "1 core: <code>" in (tmp_path / "report.html").read_text()


ELSEWHERE = """
from pathlib import Path
import sys
from cli.perf.page import write_page
from tests.unit.cli.perf.test_page import result_of
write_page(result_of() | {"url": "http://\\u00e4"}, Path(sys.argv[1]))
"""


def test_a_page_is_in_utf8_as_it_says_whatever_the_locale(tmp_path):
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-c", ELSEWHERE, tmp_path / "report.html"]
    subprocess.run(command, env=environment, cwd=PROJECT_ROOT, check=True)
    assert "<h1>http://\u00e4, asked" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_sweep(tmp_path):
    slow = several(8, first=1.5)
    slow[3].fail("HTTP 500", HOSTILE)
    html, page = page_of(tmp_path, load_of(several(1), concurrency=1), load_of(slow, concurrency=8))
    assert (
        "the rest is about the others. First tokens get slow: at 8 streams half of them take longer than 1.50 s"
        in page.text
    )
    assert "1 of 9 requests failed: HTTP 500 (<script>" in page.text
    for title in (
        "Throughput against latency",
        "Time to first token",
        "Time between tokens",
        "Timeline",
        "failed requests: 1",
    ):
        assert title in page.text
    assert page.tags.count("figure") == 4
    assert '<td class="slow">1.50 s</td>' in html
    # Nothing is fetched, and nothing runs.
    assert page.addresses == []
    assert "script" not in page.tags
    assert not re.search(r"url\(|@import", html)
    addresses = {found.rstrip(",:") for found in re.findall(r"https?://[^\s\"'<>]+", html)}
    assert addresses == {"http://server", "http://www.w3.org/2000/svg"}


def test_one_load_without_faults(tmp_path):
    _, page = page_of(tmp_path, load_of(several(4)))
    assert "No failures, no stalls" in page.text
    assert page.tags.count("figure") == 3  # no sweep


def test_answers_that_came_at_once_and_none_at_all(tmp_path):
    whole = [answered(number, tokens=1) for number in range(3)]
    for request in whole:
        del request.events[:]
    _, page = page_of(tmp_path, load_of(whole))
    assert page.tags.count("figure") == 1
    for request in whole:
        request.fail("HTTP 500")
    _, page = page_of(tmp_path, load_of(whole))
    assert "Nothing was answered." in page.text


def test_a_dozen_loads(tmp_path):
    loads = [load_of(several(number), concurrency=number) for number in range(1, 13)]
    _, page = page_of(tmp_path, *loads)
    assert "12 streams" in page.text


@pytest.mark.parametrize("most", [0, 0.3, 1, 7, 99, 100, 3149.7, 1e6])
def test_labels_are_round(most):
    steps = _round_steps(most)
    assert steps[0] == 0
    assert steps[-1] >= most
    assert len(steps) <= 6
