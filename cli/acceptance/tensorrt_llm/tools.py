"""Compare the arguments of TensorRT-LLM's tools with builder/engines/tensorrt_llm/arguments."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from builder.engines.tensorrt_llm.scripts import QUANTIZE, converter
from builder.engines.tensorrt_llm.tables import Table, table
from cli.acceptance.check import Check, Outcome, Skip, Unable
from shared.signals import in_words

if TYPE_CHECKING:
    from .bench import TensorRTLLMBench

# Where argparse begins the help of an argument: `  -h, --help`, `  --name NAME, --alias NAME`.
_OPTIONS = re.compile(r"^ {1,8}(-.*)$", re.MULTILINE)
_NAME = re.compile(r"(?:^|[\s,])--([A-Za-z][\w-]*)")
_ALWAYS = {"help"}


def _help(script: str | None, known: Table, bench: TensorRTLLMBench) -> Outcome:
    program = bench.python.with_name("trtllm-build")
    if script:
        program = bench.python.parent.parent / "examples" / script
    if not program.is_file():
        raise Skip(f"{program.name} is not here: it is in the builder's image")
    done = bench.run([str(bench.python), str(program), "--help"])
    if done.returncode:
        raise Unable(f"--help ended with {in_words(done.returncode)}: {done.stderr.strip()[-300:]}")
    lines = "\n".join(line.partition("  ")[0] for line in _OPTIONS.findall(done.stdout))
    offered = set(_NAME.findall(lines)) - _ALWAYS
    # What is known from some versions only may or may not be there.
    names = {name for one in known.arguments for name in (one.name, *one.aliases)}
    missing = sorted(one.name for one in known.arguments if not one.uncertain and one.name not in offered)
    more = sorted(name for name in offered - names)
    expected = "those of our table"
    problems = [f"lacks --{name}" for name in missing] + [f"has --{name} too" for name in more]
    return Outcome(expected, ", ".join(problems) or expected)


def _check(name: str, script: str | None, known: Table) -> Check:
    return Check(
        f"help of {name}",
        "the tool accepts the arguments that configs are checked against, and no others",
        known.source,
        partial(_help, script, known),
    )


CHECKS = (
    _check("trtllm-build", None, table("trtllm-build")),
    _check("quantize.py", QUANTIZE, table("quantize.py")),
    *(
        _check(
            f"convert_checkpoint.py of {family}", converter(family), table("convert_checkpoint.py", family)
        )
        for family in ("llama", "gpt", "qwen")
    ),
)
