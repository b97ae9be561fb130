"""Every check's findings, for people or for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cli.output import counted, say, say_json
from shared.layout import is_checkout

from .check import Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .check import Check, Finding

_COLOURS = {Severity.OK: "green", Severity.WARNING: "yellow", Severity.ERROR: "red"}


def doctor(checks: Sequence[Check], *, as_json: bool) -> int:
    """Print what `checks` find; return the exit status: 1 when cog-triton does not work here."""
    on_host = is_checkout()
    found = {check: check.findings() for check in checks if on_host or not check.of_hosts}
    if as_json:
        say_json({"checks": [_as_json(check, findings) for check, findings in found.items()]})
    else:
        for check, findings in found.items():
            say(check.description)
            for finding in findings:
                _say(finding)
    severities = [finding.severity for findings in found.values() for finding in findings]
    errors, warnings = severities.count(Severity.ERROR), severities.count(Severity.WARNING)
    if not as_json:
        say(f"{counted(errors, 'error')}, {counted(warnings, 'warning')}")
    return 1 if errors else 0


def _as_json(check: Check, findings: Sequence[Finding]) -> dict[str, Any]:
    return {"name": check.name, "description": check.description, "findings": list(map(asdict, findings))}


def _say(finding: Finding) -> None:
    say(f"  {finding.severity:<8}{finding.message}", _COLOURS[finding.severity])
    if finding.remedy:
        say(f"          {finding.remedy}")
