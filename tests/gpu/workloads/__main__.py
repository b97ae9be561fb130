"""Loads as real clients make them, one side after the other: `python -m tests.gpu.workloads --target DIR --side SIDE...`

DIR is where the payload was unpacked (`python -m tests.gpu.serving.payload`). Sides: `runner` (our front, both APIs),
`serve_rust` (`vllm serve` with its Rust front) and `async_llm` (vLLM's engine without a server). Every side has the
same engine arguments, tokenizer, loads and log level. A first token counts from when its request was due to the
first text. Writes a JSON report after each figure; `python -m tests.gpu.workloads.page` makes the tables of the page.

Without a GPU, `--rehearse` plays small loads against a tiny model: after `make test-vllm`, without DIR.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.gpu.serving.load import ROOT, Report, end, free_port, server
from tests.gpu.serving.machine import below, cpu_per_token, cpu_seconds, machine
from tests.gpu.serving.model import MODEL_NAME, write_engine, write_model
from tests.gpu.serving.stand_ins import on_cpu, target_of_checkout
from tests.gpu.workloads.figures import figures_of
from tests.gpu.workloads.http_client import cog_ask, openai_ask, play
from tests.gpu.workloads.loads import CHAT_TEMPLATE, all_loads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.gpu.workloads.loads import Load

SIDES = ("runner", "serve_rust", "async_llm")
ENGINE_ARGUMENTS = {
    "load_format": "dummy",
    "dtype": "bfloat16",
    "max_num_seqs": 2048,
    "max_num_batched_tokens": 8192,
    "max_model_len": 8448,
    "enable_prefix_caching": True,
}
REHEARSAL_ARGUMENTS = {
    "load_format": "dummy",
    "max_model_len": 8448,
    "enforce_eager": True,
    "kv_cache_memory_bytes": 1 << 30,
    "enable_prefix_caching": True,
}
_REHEARSAL_SCALE = 0.03
# What a peer's log says when it is not at its best.
_FALLBACK = re.compile(r"fall(?:ing)? ?back|failed to load", re.IGNORECASE)
_VLLM = {
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_USE_DEEP_GEMM": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "PYTORCH_SKIP_CUDNN_COMPATIBILITY_CHECK": "1",
}


def play_all(report: Report, side: str, loads: Sequence[Load], port: int, pid: int, ask: Any) -> None:
    """Each load once, and the CPU time it took."""
    for load in loads:
        with report.step(f"{side}, {load.name}"):
            before, started = cpu_seconds(pid), time.monotonic()
            played = asyncio.run(play(load, port, ask))
            seconds = time.monotonic() - started
            figures = figures_of(played, seconds)
            cpu = cpu_per_token(before, cpu_seconds(pid), figures["tokens"])
            report.add(side, load=load.name, title=load.title, **figures, cpu_us_per_token=cpu)


def run_runner(options: argparse.Namespace, report: Report, scratch: Path) -> None:
    engine = write_engine(
        scratch / "engine", options.arguments, rehearsal=options.rehearse, template=CHAT_TEMPLATE
    )
    port = free_port()
    environment = _VLLM | {
        "COG_TRITON_HOME": str(options.target / "home"),
        "PYTHONPATH": str(ROOT),
        "PYTHONSAFEPATH": "1",
        "COG_WEIGHTS": str(engine),
        "WEIGHTS_CACHE": str(scratch / "weights"),
        "END_ID": "-1",
        "SERVED_MODEL_NAME": MODEL_NAME,
        "LOG_LEVEL": "warning",
        "MAX_PREDICTIONS": "4096",
        "COMPILE_CACHE": str(options.log / "compiled"),
    }
    command = [sys.executable, "-m", "runner.lifecycle", "--host", "127.0.0.1", "--port", str(port)]
    ready = f"http://127.0.0.1:{port}/health/ready"
    started = time.monotonic()
    with server([*command, "--end-on-failure"], environment, options.log / "runner.log", ready) as pid:
        report.add("runner, start", seconds=round(time.monotonic() - started, 1))
        for name, ask in (("openai", openai_ask), ("cog", cog_ask)):
            play_all(report, f"runner, {name}", options.played, port, pid, ask)
        kill_core(options, report, "runner, openai", port, pid)


def run_serve_rust(options: argparse.Namespace, report: Report, scratch: Path) -> None:
    model = write_model(scratch / "serve_rust", rehearsal=options.rehearse, template=CHAT_TEMPLATE)
    port = free_port()
    python = str(options.target / "home/engines/vllm/bin/python")
    command = [python, "-m", "vllm.entrypoints.cli.main", "serve", str(model), "--port", str(port)]
    command += ["--host", "127.0.0.1", "--served-model-name", MODEL_NAME]
    for name, value in options.arguments.items():
        flag = name.replace("_", "-")
        command += [f"--{flag}" if value is True else f"--{flag}={value}"]
    log = options.log / "serve_rust.log"
    environment = _VLLM | {"VLLM_USE_RUST_FRONTEND": "1"}
    started = time.monotonic()
    with server(command, environment, log, f"http://127.0.0.1:{port}/health") as pid:
        report.add("serve_rust, start", seconds=round(time.monotonic() - started, 1))
        play_all(report, "serve_rust", options.played, port, pid, openai_ask)
        kill_core(options, report, "serve_rust", port, pid)
    lines = [line for line in log.read_text(errors="replace").splitlines() if _FALLBACK.search(line)]
    report.add("serve_rust, fallbacks in its log", lines=lines[:5])


def kill_core(options: argparse.Namespace, report: Report, side: str, port: int, pid: int) -> None:
    """Kill vLLM's engine core under 256 streams: how they end, and when the next one is answered."""
    if not options.kill:
        return
    load = all_loads(0.5 * options.scale)["burst"]

    async def killed() -> tuple[list[Any], float]:
        playing = asyncio.create_task(play(load, port, openai_ask))
        await asyncio.sleep(2)
        core = next(one for one, name in below(pid).items() if "EngineCor" in name)
        os.kill(core, 9)
        at = time.monotonic()
        return await playing, at

    with report.step(f"{side}, core killed"):
        played, at = asyncio.run(killed())
        ended = max((one.ended - at for one in played), default=0)
        again = None
        one = all_loads(0)["burst"]
        while time.monotonic() - at < options.kill and again is None:
            try:
                answers = asyncio.run(play(one, port, openai_ask))
                again = time.monotonic() - at if all(answer.is_whole for answer in answers) else None
            except OSError:
                pass
            if again is None:
                time.sleep(1)
        report.add(
            f"{side}, core killed",
            streams=len(played),
            whole=sum(one.is_whole for one in played),
            ended_seconds=round(ended, 2),
            serves_again_seconds=None if again is None else round(again, 1),
        )


def run_async_llm(options: argparse.Namespace, report: Report, scratch: Path) -> None:
    model = write_model(scratch / "direct", rehearsal=options.rehearse, template=CHAT_TEMPLATE)
    command = [str(options.target / "home/engines/vllm/bin/python"), "-m", "tests.gpu.workloads.direct"]
    command += ["--model", str(model), "--arguments", json.dumps(options.arguments)]
    command += ["--scale", str(options.scale), *(load.name for load in options.played)]
    titles = {load.name: load.title for load in options.played}
    done = subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | _VLLM | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=(options.log / "async_llm.log").open("wb"),
        text=True,
        start_new_session=True,
    )
    assert done.stdout is not None
    used: dict[str, float] = {}
    try:
        for line in done.stdout:
            if not line.startswith("{"):
                continue
            figures = json.loads(line)
            before, used = used, cpu_seconds(done.pid)
            if "load" not in figures:
                report.add("async_llm, start", seconds=figures["ready"])
                continue
            cpu = cpu_per_token(before, used, figures["tokens"])
            report.add("async_llm", title=titles[figures["load"]], **figures, cpu_us_per_token=cpu)
        done.wait(60)
    finally:
        end(done.pid)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.workloads")
    parser.add_argument("--target", type=Path, help="where the payload lies; without it, this checkout")
    parser.add_argument("--side", nargs="+", default=list(SIDES), choices=SIDES)
    parser.add_argument("--load", nargs="+", default=list(all_loads(0)), choices=list(all_loads(0)))
    parser.add_argument(
        "--kill", type=float, default=0, metavar="SECONDS", help="kill the core, and wait so long"
    )
    parser.add_argument("--rehearse", action="store_true", help="a tiny model, for a machine without a GPU")
    parser.add_argument("--log", type=Path, default=Path("/tmp/workloads"))
    options = parser.parse_args()
    options.scale = _REHEARSAL_SCALE if options.rehearse else 1
    options.arguments = REHEARSAL_ARGUMENTS if options.rehearse else ENGINE_ARGUMENTS
    loads = all_loads(options.scale)
    options.played = [loads[name] for name in options.load]
    options.log = options.log.resolve()
    options.log.mkdir(parents=True, exist_ok=True)
    scratch = options.log / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    if options.target is None:
        options.target = target_of_checkout(scratch / "target", simulate=False)
    options.target = options.target.resolve()
    if options.rehearse:
        os.environ |= on_cpu(scratch, rehearse=True)
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    report = Report(options.log, {})
    report.add("machine", **machine(options.target))
    runs = {"runner": run_runner, "serve_rust": run_serve_rust, "async_llm": run_async_llm}
    for side in options.side:
        with report.step(side):
            runs[side](options, report, scratch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
