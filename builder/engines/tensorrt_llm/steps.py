"""From the steps of a cog-trt-llm config to calls: which tool each runs, with which current arguments."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, NamedTuple, get_args

from builder.engines.tensorrt_llm import scripts
from builder.engines.tensorrt_llm.call import Call, Given, as_written, in_config, shown
from builder.engines.tensorrt_llm.commands import ToolStep
from builder.engines.tensorrt_llm.old_arguments import DTYPES, MAX_INPUT_LEN, RULES, Dropped, Removed, Renamed
from builder.engines.tensorrt_llm.tables import table
from shared.config.problems import nearest
from shared.errors import (
    ArgumentDropped,
    ArgumentInvalid,
    ArgumentRemoved,
    ArgumentReplaced,
    ArgumentsContradict,
    ConfigKeyMissing,
    ExampleUnknown,
    ExecutableUnknown,
    ScriptReplaced,
    ScriptUnknown,
)

if TYPE_CHECKING:
    from builder.engines.tensorrt_llm.call import Value
    from builder.engines.tensorrt_llm.commands import Tool
    from builder.engines.tensorrt_llm.tables import Argument
    from builder.findings import Findings
    from shared.config.document import Place
    from shared.config.old import CogTRTLLMConfig, ToolSection

_PYTHONS = ("python", "python3")
_NO_EXAMPLES = ("", "..", "src")  # folders of a script; the last is the work directory
_CONVERT: Final = "convert_checkpoint.py"
_DEFAULT_INPUT_LEN = 1024  # of trtllm-build, when it had max_output_len


class Translated(NamedTuple):
    """A call, and what its step said about the checkpoint rather than about itself."""

    call: Call
    old_script: str  # its name in the config
    of_checkpoint: dict[str, Given]


def translate(config: CogTRTLLMConfig, findings: Findings) -> list[Translated]:
    """The steps of `config` in order; one that cannot be understood is left out."""
    found = []
    for step in get_args(ToolStep):
        section: ToolSection | None = getattr(config, step)
        if section is not None and (chosen := _choose(config, step, section, findings)):
            found.append(_translated(step, section, chosen, findings))
    return found


def added_conversion(config: CogTRTLLMConfig, output_dir: str, findings: Findings) -> Call | None:
    """A step that makes the checkpoint `output_dir` of the model; None if the example is unknown."""
    example = _example(config.example_name, findings)
    if example is None:
        return None
    script = scripts.converter(example)
    return Call("convert_to_ft", _CONVERT, script, table(_CONVERT, example), ("build",), output_dir)


class _Chosen(NamedTuple):
    script: str  # or program, as named in the config
    tool: Tool
    example: str


def _choose(
    config: CogTRTLLMConfig, step: ToolStep, section: ToolSection, findings: Findings
) -> _Chosen | None:
    executable, script = section.executable, section.script
    example = "quantize.py" if step == "quantize" else _CONVERT
    wanted = "trtllm-build" if step == "build" else f"python, with a script such as {example}"
    if executable == "trtllm-build" and step == "build":
        return _Chosen(executable, "trtllm-build", "")
    if executable is not None and (executable not in _PYTHONS or (step == "build" and script is None)):
        error = ExecutableUnknown(step=step, executable=executable, wanted=wanted)
        findings.error((step, "executable"), error)
        return None
    if script is None:
        key, what = ("script", f"a script such as {example}") if executable else ("executable", wanted)
        findings.error((step,), ConfigKeyMissing(key=f"{step}.{key}", instead=f"it is {what}"))
        return None
    return _choose_script(config, step, PurePosixPath(script), findings)


def _choose_script(
    config: CogTRTLLMConfig, step: ToolStep, script: PurePosixPath, findings: Findings
) -> _Chosen | None:
    place: Place = (step, "script")
    name = script.name
    if step == "build":
        if name == "build.py":
            findings.warn(place, ScriptReplaced(script=name, instead="trtllm-build"))
            return _Chosen(name, "trtllm-build", scripts.example_of(config.example_name or "") or "")
        instead = "executable: trtllm-build, without a script"
        findings.error(place, ScriptUnknown(script=str(script), step=step, nearest=instead))
        return None
    if name == "quantize.py":
        return _Chosen(name, "quantize.py", "")
    if old := scripts.OLD_CONVERTERS.get(name):
        findings.warn(place, ScriptReplaced(script=name, instead=scripts.converter(old)))
        return _Chosen(name, _CONVERT, old)
    if name == _CONVERT:
        folder = script.parent.name
        example = (
            _example(config.example_name, findings)
            if folder in _NO_EXAMPLES
            else _example_of_folder(folder, place, findings)
        )
        return None if example is None else _Chosen(name, _CONVERT, example)
    known = ["quantize.py", _CONVERT]
    close = nearest(name, [*known, *scripts.OLD_CONVERTERS]) or " or ".join(known)
    old = scripts.OLD_CONVERTERS.get(close)
    instead = close if old is None else scripts.converter(old)
    findings.error(place, ScriptUnknown(script=str(script), step=step, nearest=instead))
    return None


def _example(name: str | None, findings: Findings) -> str | None:
    place: Place = ("example_name",)
    if name is None:
        instead = "it is a folder of TensorRT-LLM's examples, such as llama"
        findings.error(place, ConfigKeyMissing(key="example_name", instead=instead))
        return None
    example = scripts.example_of(name)
    if example is None:
        close = nearest(PurePosixPath(name).name, scripts.NAMES) or f"one of {', '.join(scripts.EXAMPLES)}"
        findings.error(place, ExampleUnknown(example=name, nearest=close))
    return example


def _example_of_folder(folder: str, place: Place, findings: Findings) -> str | None:
    example = scripts.example_of(folder)
    if example is None:
        alone = f"{_CONVERT} alone, with example_name, or put one of these folders before it"
        close = nearest(folder, scripts.NAMES)
        instead = f"{close}/{_CONVERT}" if close else f"{alone}: {', '.join(scripts.EXAMPLES)}"
        findings.error(place, ExampleUnknown(example=folder, nearest=instead))
    return example


def _translated(step: ToolStep, section: ToolSection, chosen: _Chosen, findings: Findings) -> Translated:
    name, tool, example = chosen
    script = {
        "trtllm-build": None,
        "quantize.py": scripts.QUANTIZE,
        _CONVERT: scripts.converter(example) if tool == _CONVERT else None,
    }[tool]
    call = Call(step, tool, script, table(tool, example), (step,), section.output_dir)
    of_checkpoint: dict[str, Given] = {}
    for old, value in section.args.items():
        given = Given(_alone(value), (step, "args", old))
        if old == "max_output_len" and step == "build":
            _set(call.arguments, "max_seq_len", _total_length(section, chosen, given, findings), findings)
            continue
        match RULES[name].get(old):
            case None:
                known = call.table.find(old)
                if known is None or not _is_omitted(known, given):
                    _set(call.arguments, known.name if known else old, given, findings)
            case Dropped(reason):
                findings.warn(given.place, ArgumentDropped(tool=name, argument=old, reason=reason))
            case Removed(reason):
                findings.error(given.place, ArgumentRemoved(tool=name, argument=old, reason=reason))
            case Renamed() as rule:
                new = Given(_new_value(rule, given), given.place)
                if name == call.tool:  # otherwise the whole script is a different one, which is reported once
                    instead = in_config(rule.name, new.value)
                    findings.warn(given.place, ArgumentReplaced(tool=name, argument=old, instead=instead))
                if not _is_omitted(call.table.find(rule.name), given):
                    _set(of_checkpoint if rule.of_checkpoint else call.arguments, rule.name, new, findings)
    return Translated(call, name, of_checkpoint)


def _is_omitted(known: Argument | None, given: Given) -> bool:
    """`false` omits an argument, but switches off one whose values are `enable` and `disable`."""
    return given.value is False and not (known and known.is_switch)


def _alone(value: Value) -> Value:
    """The one item of a list: the tools do not tell them apart. What no tool reads stays in its list."""
    match value:
        case (bool() | None,):
            return value
        case (one,):
            return one
    return value


def _new_value(rule: Renamed, given: Given) -> Value:
    value = given.value
    if rule.bare is not None and (value is None or value is True):
        return rule.bare
    return DTYPES.get(value, value) if rule.name == "dtype" and isinstance(value, str) else value


def _set(arguments: dict[str, Given], name: str, given: Given | None, findings: Findings) -> None:
    """Add `name`; if both an old and a new argument set it, they must agree."""
    if given is None:
        return
    other = arguments.setdefault(name, given)
    if str(other.value) != str(given.value):
        findings.error(
            given.place,
            ArgumentsContradict(
                argument=as_written(str(given.place[-1]), given.value),
                reason=f"{'.'.join(map(str, other.place))} sets {as_written(name, other.value)}",
                fix="Keep one of them",
            ),
        )


def merge(arguments: dict[str, Given], moved: dict[str, Given], findings: Findings) -> None:
    """Add what a later step said about the checkpoint to the call that makes it."""
    for name, given in moved.items():
        _set(arguments, name, given, findings)


def _total_length(section: ToolSection, chosen: _Chosen, given: Given, findings: Findings) -> Given | None:
    """max_seq_len, which counts prompt and output together."""
    if given.value is False:
        return None  # left out
    output = _number(given.value)
    if output is None:
        error = ArgumentInvalid(
            argument="max_output_len", tool=chosen.script, value=shown(given.value), wanted="a whole number"
        )
        findings.error(given.place, error)
        return None
    if "max_seq_len" in section.args:
        reason = "max_seq_len counts prompt and output together"
        findings.warn(
            given.place, ArgumentDropped(tool=chosen.script, argument="max_output_len", reason=reason)
        )
        return None
    prompt = _prompt_length(section, chosen)
    if prompt is None:
        return None
    total = prompt + output
    if section.args.get("build_config", False) is not False:  # has all lengths
        return Given(total, given.place)
    instead = in_config("max_seq_len", total)
    replaced = ArgumentReplaced(tool=chosen.script, argument="max_output_len", instead=instead)
    findings.warn(given.place, replaced)
    return Given(total, given.place)


def _prompt_length(section: ToolSection, chosen: _Chosen) -> int | None:
    """max_input_len; None for what is not a number, which is reported where all arguments are checked."""
    value = section.args.get("max_input_len", False)
    if value is False:
        return MAX_INPUT_LEN.get(chosen.example, _DEFAULT_INPUT_LEN)
    return _number(value)


def _number(value: Value) -> int | None:
    """A number, also one that stands alone in a list; None for anything else."""
    try:
        return int(str(_alone(value)))
    except ValueError:
        return None
