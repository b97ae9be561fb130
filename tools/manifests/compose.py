"""Checks the Compose files, and the Prometheus beside them, against our code."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml

from runner.lifecycle.supervisor import SECONDS_TO_END
from tools.manifests.code import (
    DEFAULT_PORT,
    HUB_CACHE,
    is_below,
    is_ours,
    is_route,
    number,
    settings_findings,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_VARIABLE = re.compile(r"\$\{(\w+)(?::[-?]([^}]*))?\}")


def findings(folder: Path) -> Iterator[str]:
    """What is wrong in compose.yaml, compose.gpu.yaml and prometheus.yaml in `folder`."""
    services = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    for name, service in services.items():
        if is_ours(_VARIABLE.sub(r"\2", service["image"])):
            for text in _runner(service):
                yield f"service {name}: {text}"
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith(".") and not (folder / source).exists():
                yield f"service {name}: there is no {source}"
    with_gpus = yaml.safe_load((folder / "compose.gpu.yaml").read_text())["services"]
    for name, service in with_gpus.items():
        if service.get("ulimits", {}).get("memlock") != -1:
            yield f"service {name}: it may not lock the memory that an engine on several GPUs needs"
    scraped = yaml.safe_load((folder / "prometheus.yaml").read_text())["scrape_configs"]
    for job in scraped:
        if not is_route(job["metrics_path"]):
            yield f"prometheus.yaml: the front has no {job['metrics_path']}"
        for target in [one for static in job["static_configs"] for one in static["targets"]]:
            host, _, port = target.partition(":")
            if host not in services or port != services[host]["environment"].get("PORT", DEFAULT_PORT):
                yield f"prometheus.yaml: {target} is not the port of a service"


def _runner(service: dict[str, Any]) -> Iterator[str]:
    environment = {name: _VARIABLE.sub(r"\2", value) for name, value in service["environment"].items()}
    yield from settings_findings(environment)
    port = environment.get("PORT", DEFAULT_PORT)
    for mapping in service["ports"]:
        if mapping.rpartition(":")[2] != port:
            yield f"ports: {mapping} does not lead to PORT, {port}"
    needed = number(environment, "DRAIN_SECONDS") + SECONDS_TO_END
    grace = float(service["stop_grace_period"].removesuffix("s"))
    if grace < needed:
        yield f"stop_grace_period: {grace:g} s; DRAIN_SECONDS and the runner's end take {needed:g}"
    asked = re.search(r"http://localhost:(\d+)(/[\w/]+)", " ".join(service["healthcheck"]["test"]))
    if asked is None or asked[1] != port or not is_route(asked[2]):
        yield "healthcheck: that is not a path of the front"
    mounts = [volume.split(":")[1] for volume in service["volumes"]]
    for path in (environment["WEIGHTS_CACHE"], environment.get("HF_HOME", HUB_CACHE)):
        if not is_below(path, mounts):
            yield f"{path} is in no volume"
