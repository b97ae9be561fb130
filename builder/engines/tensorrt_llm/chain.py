"""The steps of a cog-trt-llm config joined: what each reads, what it writes, and that the two match."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.engines.tensorrt_llm import scripts
from builder.engines.tensorrt_llm.call import Given, ValueRefused
from builder.engines.tensorrt_llm.commands import MODEL_DIR
from builder.engines.tensorrt_llm.paths import RESERVED, clash, in_work_dir
from builder.engines.tensorrt_llm.steps import added_conversion, merge, translate
from shared.errors import (
    ArgumentDropped,
    ConversionAdded,
    OutputMoved,
    OutputTaken,
    PathOutsideWorkDir,
    StepInputMissing,
)

if TYPE_CHECKING:
    from builder.engines.tensorrt_llm.call import Call
    from builder.engines.tensorrt_llm.steps import Translated
    from builder.findings import Findings
    from shared.config.document import Place
    from shared.config.old import CogTRTLLMConfig, ToolSection

_OTHER_SOURCES = ("meta_ckpt_dir", "nemo_ckpt_path")


def calls_of_steps(config: CogTRTLLMConfig, findings: Findings) -> list[Call]:
    """The calls of a cog-trt-llm config, with their paths in the work directory."""
    calls: list[Call] = []
    for one in translate(config, findings):
        call = one.call
        _localize(call, config.model_id, findings)
        _set_output(one, config.model_id, calls, findings)
        if call.tool == "trtllm-build":
            _set_checkpoint(one, config, calls, findings)
        else:
            _set_model(call, config, findings)
        calls.append(call)
    return calls


def _localize(call: Call, model: str, findings: Findings) -> None:
    """Turn every path among the arguments into one in the work directory."""
    for name, given in call.arguments.items():
        known = call.table.find(name)
        if known is None or known.path is None:
            continue
        paths = given.value if isinstance(given.value, tuple) else (given.value,)
        key = str(given.place[-1])
        local = [_local(key, path, given.place, model, findings) for path in paths if isinstance(path, str)]
        if None in local:
            call.refused.add(name)
        elif isinstance(given.value, str):
            call.arguments[name] = Given(local[0], given.place)
        elif len(local) == len(paths):  # all of them are paths
            call.arguments[name] = Given(tuple(local), given.place)


def _local(key: str, path: str, place: Place, model: str, findings: Findings) -> str | None:
    """`path` in the work directory; None, which is reported, if it is outside."""
    local = in_work_dir(path, model)
    if local is None:
        findings.error(place, PathOutsideWorkDir(key=key, path=path))
    return local


def _set_output(one: Translated, model: str, before: list[Call], findings: Findings) -> None:
    """Decide where the step writes: where its arguments say, else its output_dir."""
    call = one.call
    place: Place = (call.step, "output_dir")
    named = _local("output_dir", call.output_dir, place, model, findings)
    try:
        written = _output_argument(one) or named
    except ValueRefused:
        written = None
    if written is None:
        call.refused.add("output_dir")
        return
    if named not in {None, written}:
        findings.warn(place, OutputMoved(step=call.step, named=named, written=written))
    call.output_dir = written
    call.arguments["output_dir"] = Given(written, call.place_of("output_dir"))
    others = [*RESERVED, *(other.output_dir for other in before if "output_dir" not in other.refused)]
    if other := clash(written, others):
        call.refused.add("output_dir")
        findings.error(place, OutputTaken(step=call.step, path=written, other=other))


def _output_argument(one: Translated) -> str | None:
    """Where the step's arguments make it write, if they say. Raises ValueRefused."""
    call = one.call
    given = call.value("output_dir")
    if "output_dir" not in call.arguments or not isinstance(given, str):
        return None
    return f"{given}/{call.size('tp_size')}-gpu" if one.old_script in scripts.OLD_CONVERTERS else given


def _as_given(config: CogTRTLLMConfig, place: Place) -> object:
    """The value at `place`, which is among a step's arguments."""
    step, _, name = place
    section: ToolSection = getattr(config, str(step))
    return section.args[str(name)]


def _set_model(call: Call, config: CogTRTLLMConfig, findings: Findings) -> None:
    """Make a conversion read the model from the hub."""
    if "model_dir" not in call.arguments:
        if not any(name in call.arguments for name in _OTHER_SOURCES):
            call.arguments = {"model_dir": Given(MODEL_DIR, call.place), **call.arguments}
        return
    path, place = call.arguments["model_dir"]
    if "model_dir" in call.refused or not isinstance(path, str) or f"{path}/".startswith(f"{MODEL_DIR}/"):
        return
    error = StepInputMissing(
        argument=f"--{place[-1]}",
        path=_as_given(config, place),
        reason="the model is not there",
        instead="/src/models/ followed by the model_id, or omit it",
    )
    findings.error(place, error)


def _set_checkpoint(one: Translated, config: CogTRTLLMConfig, calls: list[Call], findings: Findings) -> None:
    """Make trtllm-build read what an earlier step wrote; put a conversion before it if there is none."""
    call = one.call
    if "model_config" in call.arguments and "checkpoint_dir" not in call.arguments:
        return
    given = call.arguments.get("checkpoint_dir")
    path = given.value if given and "checkpoint_dir" not in call.refused else None
    outputs = [other.output_dir for other in calls if "output_dir" not in other.refused]
    if not calls and config.convert_to_ft is None and config.quantize is None:
        made = path if isinstance(path, str) and path != MODEL_DIR else "checkpoint"
        _convert_first(one, config, made, calls, findings)
        path = made
    elif path is None and calls:
        path = calls[-1].output_dir
    elif given and isinstance(path, str) and len(outputs) == len(calls) > 0 and path not in outputs:
        error = StepInputMissing(
            argument=f"--{given.place[-1]}",
            path=_as_given(config, given.place),
            reason=f"earlier steps write to {', '.join(outputs)}",
            instead=outputs[-1],
        )
        findings.error(given.place, error)
    if calls:
        merge(calls[-1].arguments, one.of_checkpoint, findings)
    if given is None and path is not None:
        call.arguments = {"checkpoint_dir": Given(path, call.place), **call.arguments}
    elif given is not None:
        call.arguments["checkpoint_dir"] = Given(path, given.place)


def _convert_first(
    one: Translated, config: CogTRTLLMConfig, output_dir: str, calls: list[Call], findings: Findings
) -> None:
    call = added_conversion(config, output_dir, findings)
    if call is None or call.script is None:
        return
    for name in [name for name in one.of_checkpoint if call.table.find(name) is None]:
        given = one.of_checkpoint.pop(name)
        reason = f"{call.script} does not accept it"
        dropped = ArgumentDropped(tool=one.old_script, argument=given.place[-1], reason=reason)
        findings.warn(given.place, dropped)
    if other := clash(output_dir, [*RESERVED, one.call.output_dir]):
        findings.error(("build",), OutputTaken(step=call.step, path=output_dir, other=other))
    call.arguments = {
        "model_dir": Given(MODEL_DIR, call.place),
        "output_dir": Given(output_dir, call.place),
    }
    findings.warn(one.call.place_of("checkpoint_dir"), ConversionAdded(path=output_dir, script=call.script))
    calls.append(call)
