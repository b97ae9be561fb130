"""The Prometheus of deploy/compose, by Prometheus' own judge."""

import shutil
import subprocess

from tests.support.images import ROOT

DEPLOY = ROOT / "deploy"


def test_prometheus_takes_its_configuration_and_its_rules(tmp_path):
    shutil.copy(DEPLOY / "compose/prometheus.yaml", tmp_path)
    shutil.copy(DEPLOY / "prometheus/cog-triton.rules.yaml", tmp_path)
    command = ["promtool", "check", "config", tmp_path / "prometheus.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 rule files found" in done.stdout
