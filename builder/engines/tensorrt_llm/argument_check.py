"""Check each argument of a call against the table of its tool."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.engines.tensorrt_llm.call import as_written, shown
from shared.config.problems import nearest
from shared.errors import (
    ArgumentDeprecated,
    ArgumentInvalid,
    ArgumentReplaced,
    ArgumentUncertain,
    ArgumentUnknown,
)

if TYPE_CHECKING:
    from builder.engines.tensorrt_llm.call import Call, Given, Value
    from builder.engines.tensorrt_llm.tables import Argument
    from builder.findings import Findings

_KINDS = {"int": int, "float": float, "str": str}
_WORDS = {"int": "a whole number", "float": "a number", "str": "text"}


def check_arguments(call: Call, findings: Findings) -> None:
    """Report what the tool would refuse; what may merely be missing from the tables is a warning."""
    for name, given in list(call.arguments.items()):
        known = call.table.find(name)
        if known is None:
            close = nearest(name.replace("-", "_"), call.table.names())
            hint = f": --{close} is the nearest known one" if close else ""
            written = given.place[-1]
            both = name if written == name else f"{name}, which --{written} has become"
            findings.warn(given.place, ArgumentUnknown(tool=call.tool, argument=both, nearest=hint))
            continue
        if known.deprecated:
            error = ArgumentDeprecated(tool=call.tool, argument=name, instead=known.deprecated)
            findings.warn(given.place, error)
        if known.uncertain:
            uncertain = ArgumentUncertain(tool=call.tool, argument=f"--{name}", fix="remove it")
            findings.warn(given.place, uncertain)
        if name not in call.refused:  # for where it leads
            _check_value(call, known, given, findings)


def _check_value(call: Call, known: Argument, given: Given, findings: Findings) -> None:
    value, place = given
    if known.type == "flag":
        if value is not None and not isinstance(value, bool):
            _invalid(call, known, given, value, "nothing after it, or false to omit it", findings)
        return
    switch = known.is_switch
    if value is None or isinstance(value, bool) or value == ():
        if switch and value != ():
            meant = "disable" if value is False else "enable"
            if not known.deprecated:  # else its successor is to be written
                instead = f"{known.name}: {meant}"
                error = ArgumentReplaced(tool=call.tool, argument=known.name, instead=instead)
                findings.warn(place, error)
            call.arguments[known.name] = given._replace(value=meant)
        else:
            _invalid(call, known, given, value, _wanted(known), findings)
        return
    values = value if isinstance(value, tuple) else (value,)
    if len(values) > 1 and not known.many:
        _invalid(call, known, given, list(values), _wanted(known), findings)
        return
    for one in values:
        _check_one(call, known, given, one, findings)


def _check_one(call: Call, known: Argument, given: Given, value: Value, findings: Findings) -> None:
    if isinstance(value, bool | tuple | None):
        _invalid(call, known, given, value, _wanted(known), findings)
        return
    text = str(value).lower() if known.name == "kv_cache_type" else str(value)
    try:
        number = _KINDS[known.type](text)
    except ValueError:
        _invalid(call, known, given, value, _wanted(known), findings)
        return
    if known.choices and text not in known.choices:
        if text in known.uncertain_choices:
            argument = as_written(known.name, text)
            error = ArgumentUncertain(tool=call.tool, argument=argument, fix="write another value")
            findings.warn(given.place, error)
            return
        close = nearest(text, known.choices)
        hint = f"{_wanted(known)} ({close} is the nearest)" if close else _wanted(known)
        _invalid(call, known, given, value, hint, findings)
    elif known.minimum is not None and isinstance(number, int) and number < known.minimum:
        _invalid(call, known, given, value, f"at least {known.minimum}", findings)
    elif text.startswith("-") and known.type == "str":
        _invalid(call, known, given, value, "a value that does not start with a dash", findings)


def _wanted(known: Argument) -> str:
    if known.choices:
        return f"one of {', '.join(known.choices)}"
    return _WORDS[known.type]


def _invalid(
    call: Call, known: Argument, given: Given, value: object, wanted: str, findings: Findings
) -> None:
    call.refused.add(known.name)
    error = ArgumentInvalid(tool=call.tool, argument=known.name, value=shown(value), wanted=wanted)
    findings.error(given.place, error)
