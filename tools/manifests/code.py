"""Checks manifests against our own code: environment variables and their values, ports, paths, programs,
times.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import yaml

from runner.front.front import Front
from runner.lifecycle.supervisor import SECONDS_TO_END
from runner.settings import Settings
from shared.errors import SettingInvalid
from tools.docs.environment import OTHERS
from tools.manifests.programs import runs_a_server

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from runner.front.router import Router
    from tools.manifests.kustomize import Resource

VARIABLES = {str(field.alias): field for field in Settings.model_fields.values()}
"""What the runner reads, by name."""
OTHER_VARIABLES = {name for name, _, _ in OTHERS["The runner and the builder"]}
DEFAULT_PORT = next(default for name, default, _ in OTHERS["The runner and the builder"] if name == "PORT")
_SECONDS_OF_HOST = 10
"""How long a host that has joined may take: it kills what it runs (runner/lifecycle/joining.py)."""
_COMPILE_CACHE = "/var/cache/cog-triton/compiled"  # as nix/images.nix sets it
HUB_CACHE = "/home/cog/.cache/huggingface"  # where HF_HOME is not set
_OURS = re.compile(r"(^|/)cog-triton-(runner|builder)")
_FILLED_IN = re.compile(r"\$\(\w+\)")  # by the kubelet
_ANNOTATION = re.compile(r"^prometheus\.(kserve\.)?io/(port|path)$")
_AN_ADDRESS = "10.0.0.1"


def is_ours(image: str) -> bool:
    """Whether a container runs one of our images."""
    return _OURS.search(image) is not None


def settings_findings(environment: Mapping[str, str]) -> Iterator[str]:
    """Variables that the runner does not read, and values that it refuses."""
    for name, value in environment.items():
        if name in VARIABLES:
            try:
                Settings.from_environment({name: _FILLED_IN.sub(_AN_ADDRESS, value)})
            except SettingInvalid as invalid:
                yield str(invalid)
        elif name not in OTHER_VARIABLES:
            yield f"the runner reads no variable {name}"


def number(environment: Mapping[str, str], name: str) -> float:
    """The value of a setting in seconds, or its default; 0 for an invalid one (a finding of its own)."""
    default = VARIABLES[name].default if name in VARIABLES else 0
    try:
        return float(environment.get(name) or default)
    except ValueError:
        return 0


def is_route(path: str) -> bool:
    """Whether the front answers GET of a path."""
    handlers, _ = _router().find(path)
    return "GET" in handlers


@cache
def _router() -> Router:
    async def made() -> Router:  # a front needs an event loop
        front = Front(Settings.from_environment({}))
        await front.close()
        return front.app.router

    return asyncio.run(made())


@dataclass
class Pod:
    """A pod specification somewhere in a resource, with the containers that run our images."""

    spec: dict[str, Any]
    annotations: dict[str, str]
    labels: dict[str, str]
    containers: list[dict[str, Any]] = field(init=False)

    def __post_init__(self) -> None:
        self.containers = [one for one in self.spec["containers"] if is_ours(one.get("image", ""))]

    def findings(self) -> Iterator[str]:
        """Everything that does not fit the code."""
        for container in self.containers:
            yield from self._container(container)
        for name, value in self.annotations.items():
            match = _ANNOTATION.match(name)
            if match and self.containers:
                port = environment(self.containers[0]).get("PORT", DEFAULT_PORT)
                if match[2] == "port" and value != port:
                    yield f"{name}: {value} is not PORT, {port}"
                if match[2] == "path" and not is_route(value):
                    yield f"{name}: the front has no {value}"

    def _container(self, container: dict[str, Any]) -> Iterator[str]:
        literal = environment(container)
        yield from settings_findings(literal)
        ports = {str(one.get("name")): str(one["containerPort"]) for one in container.get("ports", ())}
        port = literal.get("PORT", DEFAULT_PORT)
        try:
            serves = runs_a_server(container)
        except ValueError as wrong:
            yield str(wrong)
            return
        if "terminationGracePeriodSeconds" in self.spec:
            yield from _grace(container, self.spec["terminationGracePeriodSeconds"], serves=serves)
        if serves and port not in ports.values():
            yield f"no containerPort is PORT, {port}"
        for name in ("startupProbe", "livenessProbe", "readinessProbe"):
            if not serves:
                if name in container:
                    yield f"{name}: nothing answers it there"
                continue
            if (asked := container.get(name, {}).get("httpGet")) is None:
                yield f"there is no {name}"
                continue
            if ports.get(str(asked["port"]), str(asked["port"])) != port:
                yield f"{name}: port {asked['port']} is not PORT, {port}"
            if not is_route(asked["path"]):
                yield f"{name}: the front has no {asked['path']}"
        if serves:
            yield from _startup(container, literal)
        yield from self._writable(container, literal)

    def _writable(self, container: dict[str, Any], literal: Mapping[str, str]) -> Iterator[str]:
        if not container.get("securityContext", {}).get("readOnlyRootFilesystem"):
            yield "its root file system is writable"
        mounts = [one["mountPath"] for one in container.get("volumeMounts", ())]
        needed = ["/tmp", *([literal["WEIGHTS_CACHE"]] if "WEIGHTS_CACHE" in literal else [])]  # noqa: S108 - of the container
        if "-vllm-" in container["image"]:
            needed.append(literal.get("COMPILE_CACHE", _COMPILE_CACHE))
        for path in needed:
            if not is_below(path, mounts):
                yield f"{path} is in no volume"
        kept = [one["mountPath"] for one in container.get("volumeMounts", ()) if one["name"] in self.claims]
        hub = literal.get("HF_HOME") or HUB_CACHE
        if kept and not is_below(hub, kept):
            yield f"models from the hub, in {hub}, are in no persistent volume"
        volumes = {one["name"] for one in self.spec.get("volumes", ())} | self.claims
        for one in container.get("volumeMounts", ()):
            if one["name"] not in volumes:
                yield f"there is no volume {one['name']}"

    claims: set[str] = field(default_factory=set)


def is_below(path: str, mounts: Sequence[str]) -> bool:
    """Whether a path is in one of the folders where volumes are mounted."""
    return any(f"{path}/".startswith(f"{mount}/") for mount in mounts)


def environment(container: Mapping[str, Any]) -> dict[str, str]:
    """The variables of a container that the runner reads: not those from which others are made."""
    filled_in = set(re.findall(r"\$\((\w+)\)", yaml.safe_dump([dict(container)])))
    return {
        one["name"]: str(one.get("value", ""))
        for one in container.get("env", ())
        if one["name"] not in filled_in
    }


def pods(resource: Resource) -> Iterator[Pod]:
    """All pod specifications in it, wherever its kind keeps them."""
    spec = resource.content.get("spec", {})
    claimed = spec.get("leaderWorkerTemplate", spec).get("volumeClaimTemplates", ())
    claims = {one["metadata"]["name"] for one in claimed}

    def search(part: Any, parent: Mapping[str, Any]) -> Iterator[Pod]:
        if isinstance(part, dict):
            if isinstance(part.get("containers"), list):
                told = parent.get("metadata") or {}
                annotations = {**told.get("annotations", {}), **part.get("annotations", {})}
                yield Pod(part, annotations, told.get("labels", {}), claims=claims)
            else:
                for value in part.values():
                    yield from search(value, part)

    yield from search(resource.content, {})


def references(resources: Sequence[Resource]) -> Iterator[str]:
    """What one resource says about another: ports by name and number, labels, targets."""
    found = [pod for resource in resources for pod in pods(resource)]
    for resource in resources:
        spec = resource.content.get("spec", {})
        match resource.content["kind"]:
            case "Service" | "PodDisruptionBudget" | "NetworkPolicy" | "InferencePool":
                labels, ports = _selected(resource.content)
                chosen = [pod for pod in found if labels.items() <= pod.labels.items()]
                if not chosen:
                    yield f"{resource}: selects nothing"
                for port in ports:
                    if not any(str(port) in _ports_of(pod) for pod in chosen):
                        yield f"{resource}: what it selects has no port {port}"
            case "HorizontalPodAutoscaler":
                target = spec["scaleTargetRef"]
                scaled = [one for one in resources if one.identity == (target["kind"], target["name"])]
                if not scaled:
                    yield f"{resource}: there is no {target['kind']} {target['name']}"
                for one in scaled:
                    if "replicas" in one.content["spec"]:
                        yield f"{resource}: {one} sets replicas: each `kubectl apply` would undo the scaling"
            case "HTTPRoute":
                for match in [one for rule in spec["rules"] for one in rule.get("matches", ())]:
                    if not is_route(f"{match['path']['value'].rstrip('/')}/models"):
                        yield f"{resource}: OpenAI's API is not below {match['path']['value']}"


def _selected(content: dict[str, Any]) -> tuple[dict[str, str], list[Any]]:
    """The labels by which a resource selects, and the ports that it refers to there."""
    spec = content["spec"]
    selector = spec.get("selector") or spec.get("podSelector")
    labels = selector.get("matchLabels", selector)
    ports: list[Any] = []
    if content["kind"] == "Service":
        ports = [one.get("targetPort") for one in spec["ports"]]
    elif content["kind"] == "InferencePool":
        ports = [one.get("number") for one in spec["targetPorts"]]
    elif content["kind"] == "NetworkPolicy":
        ports = [port.get("port") for rule in spec.get("ingress", ()) for port in rule.get("ports", ())]
    return labels, ports


def _ports_of(pod: Pod) -> set[str]:
    ports = [one for container in pod.spec["containers"] for one in container.get("ports", ())]
    return {str(one.get("name")) for one in ports} | {str(one["containerPort"]) for one in ports}


def stops_after(container: Mapping[str, Any], *, serves: bool) -> float:
    """Seconds from a pod's end until its program has nothing more to do: preStop, and DRAIN_SECONDS."""
    stop = float(container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0))
    return stop + (number(environment(container), "DRAIN_SECONDS") if serves else 0)


def _grace(container: dict[str, Any], seconds: float, *, serves: bool) -> Iterator[str]:
    needed = stops_after(container, serves=serves) + (SECONDS_TO_END if serves else _SECONDS_OF_HOST)
    if seconds < needed:
        what = "preStop, DRAIN_SECONDS and the container's end"
        yield f"terminationGracePeriodSeconds: {seconds}; {what} take {needed:g}"


def _startup(container: dict[str, Any], literal: Mapping[str, str]) -> Iterator[str]:
    probe = container.get("startupProbe", {})
    waits = probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3)
    if waits <= (needed := number(literal, "SETUP_TIMEOUT")):
        yield f"startupProbe: gives up after {waits} s; SETUP_TIMEOUT is {needed:g}"
