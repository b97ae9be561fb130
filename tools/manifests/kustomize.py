"""Does what `kubectl kustomize` does with the few things that our overlays use: resources, components, and
patches.

A strategic merge joins mappings key by key, and the items of lists that Kubernetes identifies by a key
(`_KEYS`); other lists are replaced, and null removes (Kubernetes' API conventions).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

if TYPE_CHECKING:
    from pathlib import Path

_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
}
_USED = {"apiVersion", "kind", "resources", "components", "patches"}


class Resource(NamedTuple):
    """One object of Kubernetes, and the files that it comes from."""

    content: dict[str, Any]
    files: tuple[Path, ...]

    @property
    def identity(self) -> tuple[str, str]:
        """Kind and name, by which a patch finds it."""
        return self.content["kind"], self.content["metadata"]["name"]

    def __str__(self) -> str:
        return "/".join(self.identity)


def build(folder: Path) -> list[Resource]:
    """The resources of the kustomization in `folder`, patched.

    Raises ValueError for a kustomize field that is unknown here, and for a patch that fits nothing.
    """
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    if unknown := set(kustomization) - _USED:
        raise ValueError(f"{folder}: unknown here: {', '.join(sorted(unknown))}")
    found: list[Resource] = []
    for name in (*kustomization.get("resources", ()), *kustomization.get("components", ())):
        path = (folder / name).resolve()
        found += build(path) if path.is_dir() else read(path)
    for patch in kustomization.get("patches", ()):
        if set(patch) != {"path"}:
            raise ValueError(f"{folder}: patches are files here, and say themselves what they are for")
        for change in read(folder / patch["path"]):
            places = [number for number, one in enumerate(found) if one.identity == change.identity]
            if len(places) != 1:
                raise ValueError(f"{folder / patch['path']}: there is no {change}")
            old = found[places[0]]
            found[places[0]] = Resource(_merged(old.content, change.content), old.files + change.files)
    return found


def is_component(folder: Path) -> bool:
    """Whether the kustomization in `folder` is only a part of others."""
    return bool(yaml.safe_load((folder / "kustomization.yaml").read_text())["kind"] == "Component")


def read(path: Path) -> list[Resource]:
    """The objects in a file."""
    return [Resource(content, (path,)) for content in _parsed(path.read_text()) if content]


@cache  # most files are parts of several overlays
def _parsed(text: str) -> tuple[dict[str, Any], ...]:
    return tuple(yaml.safe_load_all(text))


def _merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    made = dict(old)
    for key, value in new.items():
        before = made.get(key)
        if value is None:
            made.pop(key, None)
        elif isinstance(value, dict) and isinstance(before, dict):
            made[key] = _merged(before, value)
        elif isinstance(before, list) and (name := _KEYS.get(key)):
            made[key] = _merged_list(before, value, name)
        else:
            made[key] = value
    return made


def _merged_list(old: list[Any], new: list[Any], key: str) -> list[Any]:
    """What the patch has comes first, in its order, as in kustomize."""
    before = {item[key]: item for item in old}
    named = {item[key] for item in new}
    patched = [_merged(before[item[key]], item) if item[key] in before else item for item in new]
    return patched + [item for item in old if item[key] not in named]
