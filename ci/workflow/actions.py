"""Stand-ins for the actions of a workflow. Each raises StepFailed where the action would fail."""

from __future__ import annotations

import fnmatch
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from ci.workflow.run import Job

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# Signs nothing, but logs what it was asked to do. Unlike skopeo, cosign does not look in /run/containers for
# who is logged in. The last word is the image.
_COSIGN = """#!/bin/sh
[ -n "$COSIGN_PRIVATE_KEY" ] || exit 1
for image; do :; done
if ! grep -q "\\"${{image%%/*}}\\"" "${{REGISTRY_AUTH_FILE:-$HOME/.docker/config.json}}"; then
    echo "nobody is logged in at ${{image%%/*}}" >&2
    exit 1
fi
echo "cosign $*" >> {log}
"""


class StepFailed(Exception):
    """A step ended with an error; the text is what it printed last."""


def checkout(job: Job, options: dict[str, Any]) -> None:
    """Only the commit, as on GitHub. The environments, which take minutes to make, are available."""
    run = job.run
    source = f"file://{run.repository}"
    subprocess.run(["git", "init", "--quiet", job.workspace], check=True)
    for command in (
        ["remote", "add", "origin", source],
        ["fetch", "--quiet", "--depth=1", "origin", run.commit],
        ["checkout", "--quiet", "--detach", run.commit],
    ):
        subprocess.run(["git", *command], cwd=job.workspace, check=True)
    (job.workspace / ".build").mkdir()
    for made in (run.environments / ".venv", *(run.environments / ".build").iterdir()):
        if made.name != "actionlint":
            (job.workspace / made.relative_to(run.environments)).symlink_to(made)
    del options


def upload(job: Job, options: dict[str, Any]) -> None:
    found = [path for line in options["path"].split() for path in sorted(job.workspace.glob(line))]
    if not found and options.get("if-no-files-found") == "error":
        raise StepFailed(f"no files at {options['path']}")
    into = job.run.artifacts / options["name"]
    if into.exists():
        raise StepFailed(f"an artifact {options['name']} exists already")
    into.mkdir(parents=True)
    for path in found:
        shutil.copy2(path, into)


def download(job: Job, options: dict[str, Any]) -> None:
    pattern = options.get("name") or options["pattern"]
    found = [path for path in sorted(job.run.artifacts.glob("*")) if fnmatch.fnmatch(path.name, pattern)]
    if "name" in options and not found:
        raise StepFailed(f"there is no artifact {pattern}")
    flat = "name" in options or options.get("merge-multiple")
    for path in found:
        into = job.workspace / options.get("path", "") / ("" if flat else path.name)
        shutil.copytree(path, into, dirs_exist_ok=True)


def cache(job: Job, options: dict[str, Any]) -> None:
    """Nothing was cached; note the key of what would be."""
    if not options["path"] or not options["key"]:
        raise StepFailed("a cache needs a path and a key")
    job.run.cached.append(options["key"])


def cosign(job: Job, options: dict[str, Any]) -> None:
    program = job.run.programs / "cosign"
    program.write_text(_COSIGN.format(log=job.run.folder / "cosign.log"))
    program.chmod(0o755)
    del options


def attest(job: Job, options: dict[str, Any]) -> None:
    if not _DIGEST.fullmatch(options["subject-digest"]) or not options["subject-name"]:
        raise StepFailed(f"nothing can be attested of {options}")
    if {"id-token", "attestations"} - {name for name, given in job.permissions.items() if given == "write"}:
        raise StepFailed("the job may not attest")


def scan(job: Job, options: dict[str, Any]) -> None:
    if not json.loads((job.workspace / options["sbom"]).read_text())["packages"]:
        raise StepFailed("the SBOM lists no package")


ACTIONS: dict[str, Callable[[Job, dict[str, Any]], None]] = {
    "actions/checkout": checkout,
    "actions/upload-artifact": upload,
    "actions/download-artifact": download,
    "actions/cache": cache,
    "actions/attest-build-provenance": attest,
    "sigstore/cosign-installer": cosign,
    "anchore/scan-action": scan,
}


def composite(job: Job, name: str) -> dict[str, Any]:
    """The definition of an action of this repository."""
    return job.run.read(Path(job.workspace, name, "action.yml"))
