"""Checks resources against the schemas of their API versions.

Those of Kubernetes itself are in the package `kubernetes-validate`. The schema of a custom resource is in its
CustomResourceDefinition, which no package has: `UNCHECKED` are checked only where those are available.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import yaml
from jsonschema import Draft202012Validator

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tools.manifests.kustomize import Resource

KUBERNETES = "1.34"
"""The oldest minor version that the manifests are for."""
UNCHECKED = frozenset(
    {
        "gateway.networking.k8s.io/v1 HTTPRoute",
        "inference.networking.k8s.io/v1 InferencePool",
        "leaderworkerset.x-k8s.io/v1 LeaderWorkerSet",
        "serving.kserve.io/v1alpha1 ServingRuntime",
        "serving.kserve.io/v1beta1 InferenceService",
    }
)


def kind_of(resource: Resource) -> str:
    """API version and kind."""
    return f"{resource.content['apiVersion']} {resource.content['kind']}"


def findings(resource: Resource, definitions: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    """What its schema does not allow; `definitions` has those of custom resources, by `kind_of`."""
    kind = kind_of(resource)
    if kind in definitions:
        for error in Draft202012Validator(definitions[kind]).iter_errors(resource.content):
            yield f"{resource}: {error.json_path}: {error.message}"
        return
    for part in _parts_of_kubernetes(resource.content) if kind in UNCHECKED else [resource.content]:
        yield from (f"{resource}: {text}" for text in _of_kubernetes(json.dumps(part)))


@cache  # most resources are parts of several overlays, and each answer reads all schemas
def _of_kubernetes(text: str) -> tuple[str, ...]:
    part = json.loads(text)
    try:
        kubernetes_validate.validate(part, KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as error:
        return (f"{'.'.join(map(str, error.path))}: {error.message}",)
    except kubernetes_validate.SchemaNotFoundError:
        return (f"Kubernetes {KUBERNETES} has no {part['apiVersion']} {part['kind']}",)
    return ()


def _parts_of_kubernetes(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The parts of a LeaderWorkerSet that are of Kubernetes' own kinds, as objects of those."""
    group = content["spec"].get("leaderWorkerTemplate", {})
    for name in {"leaderTemplate", "workerTemplate"} & set(group):
        yield {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": name}, "template": group[name]}
    for claim in group.get("volumeClaimTemplates", ()):
        yield {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **claim}


def definitions_in(folder: Path) -> dict[str, dict[str, Any]]:
    """The schemas of the CustomResourceDefinitions in the YAML files of a folder."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if not document or document.get("kind") != "CustomResourceDefinition":
                continue
            spec = document["spec"]
            for version in spec["versions"]:
                schema = _strict(version["schema"]["openAPIV3Schema"])
                schema["properties"]["metadata"] = {"type": "object"}
                found[f"{spec['group']}/{version['name']} {spec['names']['kind']}"] = schema
    return found


def _strict(schema: Any) -> Any:
    """Unknown fields are refused: the API server would silently drop them."""
    if isinstance(schema, list):
        return [_strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _strict(value) for key, value in schema.items()}
    if (
        isinstance(schema.get("properties"), dict)
        and schema.get("type") == "object"
        and not schema.get("x-kubernetes-preserve-unknown-fields")
    ):
        made.setdefault("additionalProperties", False)
    return made
