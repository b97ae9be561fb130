"""deploy/ against schemas and code; and whether the check would notice."""

import os
import re
import shutil
import subprocess
import sys

import pytest
import yaml

from runner.lifecycle.supervisor import SECONDS_TO_END
from tests.support.images import ROOT
from tools.manifests.__main__ import check
from tools.manifests.code import pods
from tools.manifests.kustomize import build
from tools.manifests.schemas import UNCHECKED, definitions_in

DEPLOY = ROOT / "deploy"
RUNNER = "kubernetes/base/runner.yaml"
COMPOSE = "compose/compose.yaml"
PICKER = "kubernetes/overlays/gateway"
HOSTS = "kubernetes/overlays/several-hosts"
GROUP = f"{HOSTS}/group.yaml"
UNSIZED = "kubernetes/overlays/autoscaling/unsized.yaml"
KSERVE = "kubernetes/overlays/kserve/serving-runtime.yaml"
HUB = "HF_HOME, value: /var/cache/cog-triton/huggingface"
COMPILED = "        - {name: COMPILE_CACHE, value: /home/cog/.cache/cog-triton/compiled}\n"


@pytest.fixture
def copy(tmp_path):
    """`copy(file, old, new)`: what is wrong with a copy of deploy/ where a file says something else."""

    def changed(file, old, new):
        shutil.copytree(DEPLOY, tmp_path / "deploy")
        path = tmp_path / "deploy" / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
        return "\n".join(check(tmp_path / "deploy")[0])

    return changed


def test_everything_fits():
    wrong, unchecked = check(DEPLOY)
    assert wrong == []
    assert unchecked == UNCHECKED  # docs/deploying.md names them


def test_what_only_other_programs_read_is_yaml_too():
    """Prometheus' own judge is asked by tests/deploy, where it is installed."""
    alerts = yaml.safe_load((DEPLOY / "prometheus/cog-triton.rules.yaml").read_text())["groups"][0]["rules"]
    for alert in alerts:
        assert set(alert["annotations"]) == {"summary", "description"}, alert["alert"]
    for path in DEPLOY.rglob("*.yaml"):
        assert list(yaml.safe_load_all(path.read_text())), path


def test_the_picker_may_read_objectives_by_either_name_of_their_group():
    """Of the definitions that are installed it takes llm-d's, or else those of the extension up to 1.5."""
    documents = yaml.safe_load_all((DEPLOY / PICKER / "picker-access.yaml").read_text())
    (role,) = (document for document in documents if document["kind"] == "Role")
    groups = [rule["apiGroups"] for rule in role["rules"] if "inferenceobjectives" in rule["resources"]]
    assert groups == [["llm-d.ai", "inference.networking.x-k8s.io"]]


def test_nginx_waits_for_the_longest_answer_as_the_gateway_does():
    """One that is not streamed has its first byte at its end."""
    nginx = re.findall(r"proxy_read_timeout (\w+);", (DEPLOY / "nginx/cog-triton.conf").read_text())
    route = yaml.safe_load((DEPLOY / PICKER / "route.yaml").read_text())
    assert nginx == [rule["timeouts"]["request"] for rule in route["spec"]["rules"]]


def test_nginx_asks_no_second_runner_for_what_took_too_long():
    config = (DEPLOY / "nginx/cog-triton.conf").read_text()
    (longest,) = re.findall(r"proxy_read_timeout (\w+);", config)
    assert f"proxy_next_upstream_timeout {longest};" in config


def test_the_page_names_what_is_not_checked():
    page = (ROOT / "docs/deploying.md").read_text()
    assert [kind for kind in UNCHECKED if f"`{kind.split()[-1]}`" not in page] == []


def test_the_pages_give_a_runner_the_time_that_its_end_may_take():
    pages = {name: (ROOT / f"docs/{name}.md").read_text() for name in ("serving", "deploying", "environment")}
    assert f"at least {SECONDS_TO_END} s longer than DRAIN_SECONDS" in pages["serving"]
    assert f"up to {SECONDS_TO_END} s more to end" in pages["deploying"]
    assert f"at least {SECONDS_TO_END} s longer" in pages["environment"]


@pytest.mark.parametrize(
    ("file", "old", "new", "found"),
    [
        (RUNNER, "replicas: 1", "replica: 1", "Additional properties are not allowed ('replica' was unexpected)"),
        (RUNNER, "replicas: 1", "replicas: one", "'one' is not of type 'integer'"),
        (RUNNER, "apps/v1", "apps/v1beta1", "Kubernetes 1.34 has no apps/v1beta1 StatefulSet"),
        (RUNNER, "name: COG_WEIGHTS", "name: COG_WEIGHT", "the runner reads no variable COG_WEIGHT"),
        (RUNNER, 'value: "1800"', "value: soon", "E4002 SettingInvalid: The setting SETUP_TIMEOUT"),
        (RUNNER, 'value: "1800"', 'value: "3600"', "startupProbe: gives up after 1860 s; SETUP_TIMEOUT is 3600"),
        (RUNNER, "Seconds: 90", "Seconds: 89", "preStop, DRAIN_SECONDS and the container's end take 90"),
        (RUNNER, "path: /health/live", "path: /healthz", "livenessProbe: the front has no /healthz"),
        (RUNNER, "containerPort: 5000", "containerPort: 5001", "no containerPort is PORT, 5000"),
        (RUNNER, 'io/port: "5000"', 'io/port: "8000"', "prometheus.io/port: 8000 is not PORT, 5000"),
        (RUNNER, "io/path: /metrics", "io/path: /metric", "prometheus.io/path: the front has no /metric"),
        (RUNNER, "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "its root file system is writable"),
        (RUNNER, "mountPath: /tmp", "mountPath: /temp", "/tmp is in no volume"),
        (RUNNER, "- name: home\n", "- name: house\n", "there is no volume home"),
        (RUNNER, "value: /var/cache/cog-triton/weights", "value: /data", "/data is in no volume"),
        (RUNNER, HUB, "HF_HOME, value: /home/cog/hub", "models from the hub, in /home/cog/hub, are in no persistent volume"),
        (GROUP, HUB, 'HF_HOME, value: ""', "from the hub, in /home/cog/.cache/huggingface, are in no persistent volume"),
        (COMPOSE, "HF_HOME: /var/cache/cog-triton/", "HF_HOME: /tmp/", "/tmp/huggingface is in no volume"),
        (KSERVE, COMPILED, "", "/var/cache/cog-triton/compiled is in no volume"),
        ("kubernetes/common/service.yaml", "component: runner", "component: server", "selects nothing"),
        ("kubernetes/common/service.yaml", "targetPort: http", "targetPort: web", "has no port web"),
        (f"{PICKER}/pool.yaml", "number: 5000", "number: 8000", "has no port 8000"),
        (f"{PICKER}/route.yaml", "value: /v1", "value: /v2", "OpenAI's API is not below /v2"),
        ("kubernetes/overlays/autoscaling/autoscaler.yaml", "kind: StatefulSet", "kind: Deployment", "there is no D"),
        (UNSIZED, "replicas: null", "podManagementPolicy: Parallel", "StatefulSet/cog-triton sets replicas: each"),
        (GROUP, "name: cog-triton-hosts\n", "name: cog-triton\n", "a Service has the name of the headless"),
        (GROUP, "LeaderCreated", "LeaderReady", "startupPolicy: the others cannot wait for the leader"),
        (GROUP, '"$(POD_IP):5700"', '"0.0.0.0:5700"', "0.0.0.0:5700 is not the pod's address and a port"),
        (GROUP, "status.podIP", "status.hostIP", "POD_IP is not status.podIP"),
        (GROUP, "name: HOSTS_ADDRESS", "name: HOSTS_ADDRES", "the runner reads no variable HOSTS_ADDRES"),
        (GROUP, "containerPort: 5700", "containerPort: 5701", "HOSTS_ADDRESS: no containerPort is 5700"),
        (GROUP, "ADDRESS):5700", "ADDRESS):5701", "join $(LWS_LEADER_ADDRESS):5701, but the leader is at $(LWS_LEADER_"),
        (GROUP, "[cog-triton, join,", "[cog-triton, attach,", "5700: that is not how a host joins"),
        (GROUP, ':5700"]', ':5700", a, b]', "Got unexpected extra argument"),
        (GROUP, "args: [cog-triton, join,", "args: [python, -m, runner.joining,", "there is no program python -m runner.j"),
        (GROUP, '"1200"', '"2400"', "HOSTS_TIMEOUT is not shorter than ENGINE_START_TIMEOUT"),
        (GROUP, '"2400"', '"3600"', "ENGINE_START_TIMEOUT is not shorter than SETUP_TIMEOUT"),
        (GROUP, "seconds: 75", "seconds: 60", "the workers go before the leader has drained, which takes 70 s"),
        (GROUP, "seconds: 75", "seconds: 85", "terminationGracePeriodSeconds: 90; preStop, DRAIN_SECONDS and the container's end take 95"),
        (GROUP, "medium: Memory, ", "", "host: /dev/shm is not in memory"),
        (GROUP, "mountPath: /etc/cog-triton/hosts", "mountPath: /etc/hosts", "/secret is in no Secret"),
        (GROUP, "name: cache\n", "name: cached\n", "there is no volume cache"),
        (GROUP, "allowPrivilegeEscalation", "allowPrivilegesEscalation", "('allowPrivilegesEscalation' was unexpected)"),
        (GROUP, "storage: 1Ti", "storage: [1Ti]", "['1Ti'] is not valid under any of the given schemas"),
        (f"{HOSTS}/hosts-network-policy.yaml", "  egress:", "  egres:", "no egress on all ports between host and runner"),
        (f"{HOSTS}/hosts-network-policy.yaml", "    - from:", "    - ports: [{port: http}]\n      from:", "no ingress on all"),
        (COMPOSE, "DRAIN_SECONDS", "DRAIN", "compose: service runner: the runner reads no variable DRAIN"),
        (COMPOSE, "0.1:5000:5000", "0.1:5000:5001", "does not lead to PORT, 5000"),
        (COMPOSE, "/health/ready", "/ready", "healthcheck: that is not a path"),
        (COMPOSE, "period: 80s", "period: 79s", "DRAIN_SECONDS and the runner's end take 80"),
        (COMPOSE, "../prometheus/", "../rules/", "there is no ../rules/"),
        ("compose/compose.gpu.yaml", "memlock: -1", "memlock: 64", "may not lock the memory that an engine on several"),
        ("compose/prometheus.yaml", "runner:5000", "runner:8000", "runner:8000 is not the port of a service"),
        ("compose/prometheus.yaml", "/metrics", "/stats", "the front has no /stats"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_found(copy, file, old, new, found):
    assert found in copy(file, old, new)


WORKER = """\
              - {name: COG_WEIGHTS, value: https://models.example.com/engine.tar}
              - {name: HOSTS_SECRET_FILE, value: /etc/cog-triton/hosts/secret}
              - {name: WEIGHTS_CACHE, value: /var/cache/cog-triton/weights}
              - {name: HF_HOME, value: /var/cache/cog-triton/huggingface}
            lifecycle:
"""


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("models.", "others.", "leader and workers have different COG_WEIGHTS"),
        (
            "  lifecycle",
            "  livenessProbe: {exec: {command: [a]}}\n            lifecycle",
            "nothing answers it there",
        ),
    ],
)
def test_what_does_not_fit_in_the_workers_alone_is_found(copy, old, new, found):
    assert WORKER.count(old) == 1
    assert found in copy(GROUP, WORKER, WORKER.replace(old, new))


def test_the_page_changes_the_engine_of_all_hosts():
    page = (ROOT / "docs/deploying.md").read_text()
    (group,) = [one.content for one in build(DEPLOY / HOSTS) if one.content["kind"] == "LeaderWorkerSet"]
    paths = re.findall(r"path: (/spec/leaderWorkerTemplate/\S+)/value", page)
    for path in paths:
        place = group
        for part in path.split("/")[1:]:
            place = place[int(part)] if isinstance(place, list) else place[part]
        assert place["name"] == "COG_WEIGHTS"
    assert [path.split("/")[3] for path in paths] == ["leaderTemplate", "workerTemplate"]


def test_the_page_names_the_image_and_the_engine_of_each_folder():
    """kustomize passes over an image that it does not find, and refuses a patch without a target."""
    page = (ROOT / "docs/deploying.md").read_text()
    (example,) = re.findall(r"```yaml\n# kustomization.yaml\n(.*?)```", page, re.DOTALL)
    said = yaml.safe_load(example)
    patch = yaml.safe_load(said["patches"][0]["patch"])
    same, cpu = said["images"][0]["name"], re.findall(r"\*\*`base`\*\* has the image `(\S+)`", page)[0]
    folders = dict.fromkeys(
        ("overlays/gpu", "overlays/autoscaling", "overlays/gateway", "overlays/kserve"), same
    )
    for folder, image in {"base": cpu, **folders, "overlays/several-hosts": same}.items():
        built = build(DEPLOY / "kubernetes" / folder)
        ours = [one["image"] for resource in built for pod in pods(resource) for one in pod.containers]
        assert {one.rpartition(":")[0] for one in ours} == {image}, folder
        kinds = {one.content["kind"] for one in built}
        assert (patch["kind"] in kinds) == (folder not in {"overlays/kserve", "overlays/several-hosts"}), (
            folder
        )
    (service,) = [
        one.content
        for one in build(DEPLOY / KSERVE.rpartition("/")[0])
        if one.content["kind"] == "InferenceService"
    ]
    assert "path: /spec/predictor/model/storageUri\n" in page
    assert service["spec"]["predictor"]["model"]["storageUri"]


def test_the_page_says_how_long_the_start_up_probe_waits():
    page = (ROOT / "docs/deploying.md").read_text()
    assert "raise the probe's `failureThreshold` to (SETUP_TIMEOUT + 60) / 5." in page
    for file in (RUNNER, GROUP, KSERVE):
        text = (DEPLOY / file).read_text()
        (timeout,) = re.findall(r'SETUP_TIMEOUT, value: "(\d+)"', text)
        (period, threshold) = re.findall(
            r"startupProbe:\n.*\n +periodSeconds: (\d+)\n +failureThreshold: (\d+)", text
        )[0]
        assert (int(period), int(threshold)) == (5, (int(timeout) + 60) // 5), file


@pytest.mark.parametrize("name", ["COG_WEIGHTS", "DRAIN_SECONDS"])
def test_a_variable_that_the_code_renames_is_found(tmp_path, name):
    for folder in ("cli", "runner", "shared", "tools", "deploy"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    settings = tmp_path / "runner/settings.py"
    text = settings.read_text()
    assert f'alias="{name}"' in text
    settings.write_text(text.replace(f'alias="{name}"', f'alias="{name}_NOW"'))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    found = subprocess.run(
        [sys.executable, "-m", "tools.manifests"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 1, found.stderr
    assert f"kubernetes/base: StatefulSet/cog-triton: the runner reads no variable {name}\n" in found.stdout
    assert f"compose: service runner: the runner reads no variable {name}\n" in found.stdout


def test_definitions_of_custom_resources_are_used_where_they_are_at_hand(tmp_path):
    names = {"kind": "InferencePool"}
    schema = {
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": {"type": "object", "properties": {"selector": {"type": "object"}}},
        },
    }
    versions = [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]
    spec = {"group": "inference.networking.k8s.io", "names": names, "versions": versions}
    (tmp_path / "pool.yaml").write_text(yaml.safe_dump({"kind": "CustomResourceDefinition", "spec": spec}))
    assert set(definitions_in(tmp_path)) == {"inference.networking.k8s.io/v1 InferencePool"}
    wrong, unchecked = check(DEPLOY, tmp_path)
    assert unchecked == UNCHECKED - {"inference.networking.k8s.io/v1 InferencePool"}
    assert len(wrong) == 1
    assert "'endpointPickerRef', 'targetPorts' were unexpected" in wrong[0]


def test_overlays_are_put_together_as_kustomize_does(tmp_path):
    (tmp_path / "kustomization.yaml").write_text("resources: [base.yaml]\npatches: [{path: patch.yaml}]\n")
    (tmp_path / "base.yaml").write_text("""\
kind: Pod
metadata: {name: one, labels: {a: b, c: d}}
spec:
  containers:
    - {name: x, image: old, env: [{name: A, value: "1"}, {name: B, value: "2"}], args: [a, b]}
    - {name: y, image: other}
""")
    (tmp_path / "patch.yaml").write_text("""\
kind: Pod
metadata: {name: one, labels: {a: null}}
spec:
  containers:
    - {name: x, image: new, env: [{name: B, value: "3"}, {name: C, value: "4"}], args: [c]}
""")
    # What kubectl 1.32 (kustomize 5.5.0) answers.
    env = [{"name": name, "value": value} for name, value in (("B", "3"), ("C", "4"), ("A", "1"))]
    containers = [{"name": "x", "image": "new", "env": env, "args": ["c"]}, {"name": "y", "image": "other"}]
    assert [one.content for one in build(tmp_path)] == [
        {"kind": "Pod", "metadata": {"name": "one", "labels": {"c": "d"}}, "spec": {"containers": containers}}
    ]
    (tmp_path / "patch.yaml").write_text("kind: Pod\nmetadata: {name: two}\n")
    with pytest.raises(ValueError, match="there is no Pod/two"):
        build(tmp_path)
    (tmp_path / "kustomization.yaml").write_text("resources: [base.yaml]\nnamePrefix: a-\n")
    with pytest.raises(ValueError, match="unknown here: namePrefix"):
        build(tmp_path)
