"""The metrics that a runner tells are those that deploy/ and the docs name."""

import re
from pathlib import Path

import httpx2
import pytest

from demo.cog_client import PredictionClient
from runner.protocol.engine import Statistics
from shared.errors import REGISTRY, PromptRequired
from tests.support.front import running
from tests.support.images import ROOT

PREFIX = "cog_triton_"
CREATED = "_created"  # prometheus-client's own, of each counter
SERIES = re.compile(rf"^({PREFIX}\w+)(?:{{.*}})? ")
FAMILY = re.compile(rf"^# TYPE ({PREFIX}\w+)")
DASHBOARD = ROOT / "deploy/grafana/cog-triton.json"


@pytest.fixture(scope="module")
def exposition(engine_directory):
    """/metrics of a front that has seen everything."""
    with running(engine_directory) as front:
        front.client.statistics = Statistics(1, 2, 10, 5)
        client = PredictionClient(front.url)
        client.predict({"prompt": "5", "max_tokens": 3})
        with pytest.raises(PromptRequired):
            client.predict({"prompt": ""})
        return httpx2.get(f"{front.url}/metrics").text


def named_in(path: Path) -> set[str]:
    return set(re.findall(rf"\b{PREFIX}[a-z_]+[a-z]", path.read_text()))


def found(pattern, text):
    names = {match[1] for line in text.splitlines() if (match := pattern.match(line))}
    return {name for name in names if not name.endswith(CREATED)}


def test_deploy_names_only_metrics_that_there_are(exposition):
    series = found(SERIES, exposition)
    files = [path for path in (ROOT / "deploy").rglob("*") if path.suffix in {".json", ".yaml", ".yml"}]
    unknown = {str(path.relative_to(ROOT)): named_in(path) - series for path in files}
    assert {path: names for path, names in unknown.items() if names} == {}
    assert DASHBOARD in files


def test_the_docs_name_only_metrics_that_there_are(exposition):
    told = found(SERIES, exposition) | found(FAMILY, exposition)
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md")]
    named = {page.name: named_in(page) - told for page in pages}
    assert {page: names for page, names in named.items() if names} == {}


def test_perf_asks_only_for_metrics_that_there_are(exposition):
    histograms = {name.removesuffix("_bucket") for name in found(SERIES, exposition)}
    assert named_in(ROOT / "cli/perf/server_view.py") - histograms - found(SERIES, exposition) == set()


@pytest.mark.parametrize("place", ["deploy/grafana/cog-triton.json", "docs/serving.md"])
def test_none_is_left_out(exposition, place):
    named = {name.removesuffix("_bucket") for name in named_in(ROOT / place)}
    assert found(FAMILY, exposition) - named == set()


def test_the_codes_that_alerts_ask_for_are_errors():
    codes = set(re.findall(r"E\d{4}", (ROOT / "deploy/prometheus/cog-triton.rules.yaml").read_text()))
    assert codes
    assert codes <= set(REGISTRY)


def test_tokens_are_counted_before_their_prediction_ends(engine_directory):
    with running(engine_directory, step_seconds=0.001) as front:
        events = PredictionClient(front.url).events({"prompt": "5", "max_tokens": 100_000})
        while next(events).kind != "output":
            pass
        text = httpx2.get(f"{front.url}/metrics").text
    assert "\ncog_triton_running 1.0\n" in text
    assert "\ncog_triton_ready 1.0\n" in text
    assert re.search(r"^cog_triton_generated_tokens_total ([1-9]\d*)", text, re.MULTILINE)
