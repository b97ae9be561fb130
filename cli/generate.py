"""`cog-triton generate`: one answer of an engine, as it arrives."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import TYPE_CHECKING

from cli.output import say_json
from cli.streams import read_input
from runner.one_shot import loaded
from runner.prediction.inputs import Inputs
from shared.logs import configure_logging

if TYPE_CHECKING:
    from collections.abc import Mapping

STDIN = "-"


def generate(weights: str, inputs: Mapping[str, object], *, as_json: bool) -> None:
    """Print the answer to `inputs`, those of a prediction, by the engine of a value of COG_WEIGHTS.

    Inputs that are missing have the engine's defaults; without a prompt and messages, the prompt is read from
    stdin. Raises the errors of predictions (E1xxx, E2xxx), and those of a start (E4xxx) when the engine
    cannot be served.
    """
    # What goes wrong is raised; a log would repeat it.
    os.environ["LOG_LEVEL"] = os.environ.get("LOG_LEVEL") or "critical"
    configure_logging()
    given = {name: value for name, value in inputs.items() if value is not None}
    if given.get("messages") == STDIN or not given.keys() & {"prompt", "messages"}:
        name = "messages" if "messages" in given else "prompt"
        given[name] = _typed(name)
    asyncio.run(_generate(weights, Inputs(**given), as_json=as_json))  # type: ignore[arg-type] # typer's types


def _typed(name: str) -> str:
    """All of stdin, without a final line end, which comes from typing. Raises InvalidArgument."""
    if sys.stdin.isatty():
        sys.stderr.write(f"Type the {name}, then Ctrl-D:\n")
    return read_input(name).removesuffix("\n")


async def _generate(weights: str, inputs: Inputs, *, as_json: bool) -> None:
    ask = inputs.ask()
    async with loaded(weights) as predictor:
        began = time.perf_counter()
        generation = await predictor.start(ask)
        texts = []
        try:
            async for piece in generation:
                texts.append(piece.text)
                if not as_json:
                    sys.stdout.write(piece.text)
                    sys.stdout.flush()
        finally:
            generation.close()
            if texts and not as_json:
                sys.stdout.write("\n")
                sys.stdout.flush()
        metrics = generation.facts() | generation.results()
        metrics["predict_time"] = round(time.perf_counter() - began, 6)
    if as_json:
        say_json({"output": "".join(texts), "finish_reason": generation.finish_reason, "metrics": metrics})
