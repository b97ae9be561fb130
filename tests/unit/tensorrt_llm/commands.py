"""A plan's commands as lines: `convert_checkpoint.py --model_dir model ...`."""

from builder.check.report import check
from builder.findings import Severity


def lines(text: str, source: str = "test.yaml") -> list[str]:
    report = check(text, source)
    assert [str(one) for one in report.errors] == []
    commands = [call.command() for call in report.calls]
    return [" ".join([one.script or one.tool, *one.arguments]) for one in commands]


def warnings(text: str) -> list[tuple[str, str]]:
    """Code and key of each."""
    found = check(text, "test.yaml").diagnostics
    return [(one.code, one.key) for one in found if one.severity is Severity.WARNING]


def errors(text: str) -> list[tuple[str, str]]:
    return [(one.code, one.key) for one in check(text, "test.yaml").errors]
