"""`cog-triton acceptance` with the real vLLM, on a machine whose driver reports two GPUs."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, NamedTuple

from shared.layout import PROJECT_ROOT, Layout
from tests.support.acceptance import accept
from tests.support.driver import stand_in_driver

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_PYTHON = """\
#!/bin/sh
PYTHONPATH={changes}:"$PYTHONPATH" exec {python} "$@"
"""
# Seeded together, since an engine takes half a minute to start; only the last one leaves none to be served.
SERVED_FAULTS = {
    "another version": "import",
    "other tokens": "greedy",
    "no abort": "cancel",
    "mixed structures": "structures",
}
LAST_FAULT = ("renamed outputs", "interface")
NOT_AT_FAULT = "streaming"


class Accepted(NamedTuple):
    """The command's output in its runs: as documents, and as a page."""

    status: int
    report: dict
    page: str
    faulty: dict[str, str]
    """How each check ended that was made with a fault; NOT_AT_FAULT was made with them too."""


def run_acceptance(directory: Path, model: dict, python: Path, environment: Mapping[str, str]) -> Accepted:
    """Without a fault, then with each."""
    home, libraries, work_dir = directory / "home", directory / "libraries", directory / "work"
    program = home / "engines/vllm/bin/python"
    program.parent.mkdir(parents=True)
    changes = shlex.quote(str(PROJECT_ROOT / "tests/support/vllm_changes"))
    program.write_text(_PYTHON.format(changes=changes, python=shlex.quote(str(python))))
    program.chmod(0o755)
    for part in ("triton", "bridge"):
        (home / part).symlink_to(Layout.current().home / part)
    libraries.mkdir()
    stand_in_driver(libraries)
    config = directory / "config.yaml"
    config.write_text(json.dumps(model))

    def run(*arguments: str, faults: str = "") -> tuple[int, dict]:
        told = {
            "ENGINE_ENVIRONMENT": "VLLM_CHANGES",
            "VLLM_CHANGES": ",".join(filter(None, ("patient", faults))),
            "COMPILE_CACHE": str(directory / "compiled"),
        }
        return accept(
            config, work_dir, *arguments, home=home, libraries=libraries, environment={**environment, **told}
        )

    def only(*names: str, faults: str) -> dict[str, str]:
        status, document = run(*(word for name in names for word in ("--only", name)), faults=faults)
        assert status == 1
        return {check["name"]: check["status"] for check in document["checks"]}

    page = directory / "report.md"
    status, report = run("--report", str(page))
    kept = work_dir / "references.json"
    answers = json.loads(kept.read_text())
    answers[0]["tokens"][3] += 1
    kept.write_text(json.dumps(answers))
    faulty = only(*SERVED_FAULTS.values(), NOT_AT_FAULT, faults="another version,no abort,mixed structures")
    faulty |= only(LAST_FAULT[1], faults=LAST_FAULT[0])
    return Accepted(status, report, page.read_text(), faulty)
