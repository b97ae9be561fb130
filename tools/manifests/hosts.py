"""Checks an engine on several hosts, as a LeaderWorkerSet: its pods against each other, and what connects
them.

Facts about LeaderWorkerSet: github.com/kubernetes-sigs/lws, version 0.9.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tools.manifests.code import environment, is_ours, number, stops_after
from tools.manifests.programs import joins_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tools.manifests.kustomize import Resource

_ADDRESS = re.compile(r"\$\((\w+)\):(\d+)")
_LEADER = "$(LWS_LEADER_ADDRESS)"
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - of the container
_TIMES = ("HOSTS_TIMEOUT", "ENGINE_START_TIMEOUT", "SETUP_TIMEOUT")


def findings(resources: Sequence[Resource]) -> Iterator[str]:
    """What in the LeaderWorkerSets among them keeps their hosts apart."""
    for resource in resources:
        if resource.content["kind"] != "LeaderWorkerSet":
            continue
        group = resource.content["spec"]["leaderWorkerTemplate"]
        leader, worker = group["leaderTemplate"], group["workerTemplate"]
        found = [*_of_the_set(resource, resources), *_pair(_ours(leader), _ours(worker))]
        for template in (leader, worker):
            container, volumes = _ours(template), template["spec"]["volumes"]
            found += [f"{container['name']}: {text}" for text in _volumes(container, volumes)]
        found += _network(leader["metadata"]["labels"], worker["metadata"]["labels"], resources)
        yield from (f"{resource}: {text}" for text in found)


def _ours(template: Mapping[str, Any]) -> dict[str, Any]:
    """The container with one of our images; there is one."""
    (container,) = [one for one in template["spec"]["containers"] if is_ours(one["image"])]
    return dict(container)


def _of_the_set(resource: Resource, resources: Sequence[Resource]) -> Iterator[str]:
    if ("Service", resource.identity[1]) in {one.identity for one in resources}:
        yield "a Service has the name of the headless Service that the LeaderWorkerSet makes"
    if resource.content["spec"].get("startupPolicy", "LeaderCreated") != "LeaderCreated":
        yield "startupPolicy: the others cannot wait for the leader, which is ready once they have joined"


def _pair(leader: dict[str, Any], worker: dict[str, Any]) -> Iterator[str]:
    address = environment(leader).get("HOSTS_ADDRESS", "")
    if (match := _ADDRESS.fullmatch(address)) is None:
        yield f"HOSTS_ADDRESS: {address or 'none'} is not the pod's address and a port"
        return
    names = [one["name"] for one in leader["env"]]
    source: dict[str, Any] = next((one for one in leader["env"] if one["name"] == match[1]), {})
    if source.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath") != "status.podIP":
        yield f"HOSTS_ADDRESS: {match[1]} is not status.podIP"
    elif names.index(match[1]) > names.index("HOSTS_ADDRESS"):
        yield f"HOSTS_ADDRESS: {match[1]} comes after it, and is not filled in"
    if match[2] not in {str(one["containerPort"]) for one in leader["ports"]}:
        yield f"HOSTS_ADDRESS: no containerPort is {match[2]}"
    try:
        if (joined := joins_at(worker)) != (wanted := f"{_LEADER}:{match[2]}"):
            yield f"the workers join {joined}, but the leader is at {wanted}"
    except ValueError as wrong:
        yield str(wrong)
    if leader["image"] != worker["image"]:
        yield "leader and workers have different images"
    own, others = environment(leader), environment(worker)
    if own.get("COG_WEIGHTS") != others.get("COG_WEIGHTS"):
        yield "leader and workers have different COG_WEIGHTS"
    for shorter, longer in pairwise(_TIMES):
        if number(own, shorter) >= number(own, longer):
            yield f"{shorter} is not shorter than {longer}, of which it is a part"
    if stops_after(worker, serves=False) < (needed := stops_after(leader, serves=True)):
        yield f"preStop: the workers go before the leader has drained, which takes {needed:g} s"


def _volumes(container: Mapping[str, Any], volumes: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Shared memory, and the secret of the hosts as a file."""
    named = {one["name"]: one for one in volumes}
    mounted = {one["mountPath"]: named.get(one["name"], {}) for one in container["volumeMounts"]}
    if mounted.get(_SHARED_MEMORY, {}).get("emptyDir", {}).get("medium") != "Memory":
        yield f"{_SHARED_MEMORY} is not in memory"
    file = environment(container).get("HOSTS_SECRET_FILE", "")
    if "secret" not in mounted.get(file.rpartition("/")[0], {}):
        yield f"HOSTS_SECRET_FILE: {file or 'none'} is in no Secret"


def _network(leader: dict[str, str], worker: dict[str, str], resources: Sequence[Resource]) -> Iterator[str]:
    """Engines listen on random ports on all hosts."""
    policies = [one.content["spec"] for one in resources if one.content["kind"] == "NetworkPolicy"]
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for here in (leader, worker):
            for there in (leader, worker):
                if not any(_lets(policy, direction, peers, here, there) for policy in policies):
                    yield (
                        f"NetworkPolicy: no {direction} on all ports between"
                        f" {here['app.kubernetes.io/component']} and {there['app.kubernetes.io/component']}"
                    )


def _lets(
    policy: dict[str, Any], direction: str, peers: str, here: dict[str, str], there: dict[str, str]
) -> bool:
    rules = [rule for rule in policy.get(direction, ()) if "ports" not in rule]
    others = [peer for rule in rules for peer in rule.get(peers, ()) if set(peer) == {"podSelector"}]
    return _selects(policy["podSelector"], here) and any(
        _selects(peer["podSelector"], there) for peer in others
    )


def _selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    return bool(selector.get("matchLabels", {}).items() <= labels.items())
