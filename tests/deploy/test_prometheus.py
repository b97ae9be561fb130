"""What deploy/ gives Prometheus and Grafana, and what a runner tells at /metrics, by Prometheus' own judge."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import httpx2
import yaml

from demo.cog_client import PredictionClient
from runner.protocol.engine import Statistics
from tests.support.front import running, write_engine
from tests.support.images import ROOT

RULES = ROOT / "deploy/prometheus/cog-triton.rules.yaml"
DASHBOARD = ROOT / "deploy/grafana/cog-triton.json"


def promtool(*arguments: str | Path, stdin: str = "") -> str:
    """What it says; it must be content."""
    done = subprocess.run(
        ["promtool", *arguments],
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_metrics_keep_prometheus_conventions(tmp_path):
    with running(write_engine(tmp_path / "engine")) as front:
        front.client.statistics = Statistics(1, 2, 10, 5)
        PredictionClient(front.url).predict({"prompt": "5", "max_tokens": 3})
        exposition = httpx2.get(f"{front.url}/metrics").text
    assert "cog_triton_engine_kv_cache_blocks_used" in exposition
    assert promtool("check", "metrics", stdin=exposition) == ""


def test_every_alert_fires_when_it_should_and_not_else(tmp_path):
    shutil.copy(RULES, tmp_path)
    cases = Path(shutil.copy(ROOT / "tests/deploy/alerts.yaml", tmp_path))
    promtool("test", "rules", cases)
    # None was added without a case.
    alerts = {
        rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    }
    assert alerts == set(re.findall(r'alertname="(\w+)"', cases.read_text()))


def test_the_dashboard_asks_what_prometheus_understands(tmp_path):
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    assert len(asked) > 20
    # Grafana fills in its variables.
    asked = [re.sub(r"\$\w+", lambda it: "5m" if it[0] == "$__rate_interval" else ".*", one) for one in asked]
    rules = [{"record": f"panel_{number}", "expr": one} for number, one in enumerate(asked)]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(asked)} rules found" in promtool("check", "rules", tmp_path / "rules.yaml")
