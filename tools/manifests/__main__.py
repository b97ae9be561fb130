"""Check deploy/: `python -m tools.manifests [--crds FOLDER]`; exit status 1 when something does not fit.

FOLDER has CustomResourceDefinitions as YAML files, for the kinds whose schema is in no package.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tools.manifests import compose, hosts
from tools.manifests.code import pods, references
from tools.manifests.kustomize import build, is_component
from tools.manifests.schemas import UNCHECKED, definitions_in, findings, kind_of

DEPLOY = Path(__file__).resolve().parent.parent.parent / "deploy"


def check(deploy: Path, crds: Path | None = None) -> tuple[list[str], set[str]]:
    """What is wrong below `deploy`, with the folder of each; and the kinds whose schema was not available."""
    definitions = {} if crds is None else definitions_in(crds)
    wrong = [f"compose: {text}" for text in compose.findings(deploy / "compose")]
    unchecked: set[str] = set()
    for kustomization in sorted((deploy / "kubernetes").rglob("kustomization.yaml")):
        if is_component(kustomization.parent):
            continue
        place = kustomization.parent.relative_to(deploy)
        resources = build(kustomization.parent)
        for resource in resources:
            wrong += [f"{place}: {text}" for text in findings(resource, definitions)]
            wrong += [f"{place}: {resource}: {text}" for pod in pods(resource) for text in pod.findings()]
        wrong += [f"{place}: {text}" for text in (*references(resources), *hosts.findings(resources))]
        unchecked |= ({kind_of(resource) for resource in resources} & UNCHECKED) - set(definitions)
    return wrong, unchecked


def main() -> None:
    """Report what was found."""
    parser = argparse.ArgumentParser(prog="python -m tools.manifests", description=__doc__)
    parser.add_argument("--crds", type=Path, metavar="FOLDER")
    crds = parser.parse_args().crds
    if crds is not None and not crds.is_dir():
        parser.error(f"{crds} is not a folder")
    wrong, unchecked = check(DEPLOY, crds)
    for text in wrong:
        sys.stdout.write(f"{text}\n")
    for kind in sorted(unchecked):
        sys.stdout.write(f"not checked against a schema: {kind}\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
