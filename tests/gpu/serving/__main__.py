"""Tokens per second on a GPU, one side after the other: `python3 -m tests.gpu.serving --target DIR --side SIDE...`

DIR is where the payload was unpacked. Sides: `runner` (our front, both APIs), `async_llm` (vLLM's engine without
a server), `serve` and `serve_rust` (`vllm serve` with either front). Each is given every number of streams, all
at once, of the same 128 tokens in and 256 out; every token is counted. `--check` looks at what else has to hold of
the runner (tests/support/under_load.py); `--profile` has the first two watched once more, with the most streams.
Writes a JSON report after each figure.

Without a GPU the first two sides run from a checkout after `make test-vllm`, without DIR: `--simulate` with steps that
last as on an H200 and no model in them, `--rehearse` with a tiny one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.gpu.serving.greedy import greedy_tokens
from tests.gpu.serving.machine import (
    below,
    compute_processes,
    cpu_per_token,
    cpu_seconds,
    machine,
    processes_by_role,
)
from tests.gpu.serving.model import (
    ENGINE_ARGUMENTS,
    MODEL_NAME,
    OUTPUT_TOKENS,
    REHEARSAL_ARGUMENTS,
    prompt_ids,
    prompt_text,
    summary,
    write_engine,
    write_model,
)
from tests.gpu.serving.profile import profiled
from tests.support.under_load import cancel_half, gpu_memory, kill

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT = Path(__file__).resolve().parents[3]
_NVML = _ROOT / "tests/support/nvml_stand_in"  # shows GPUs where there are none
_START_SECONDS = 300
_RUN_SECONDS = 90


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def cog_body() -> dict[str, Any]:
    return {
        "input": {
            "prompt": prompt_text(),
            "max_tokens": OUTPUT_TOKENS,
            "temperature": 1.0,
            "top_p": 1.0,
        }
    }


def openai_body() -> dict[str, Any]:
    return {
        "model": MODEL_NAME,
        "prompt": prompt_ids(),
        "max_tokens": OUTPUT_TOKENS,
        "temperature": 1.0,
        "top_p": 1.0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


@contextmanager
def server(command: list[str], environment: dict[str, str], log: Path, ready_url: str) -> Iterator[int]:
    """A server in a session of its own, from when it answers until all its processes are gone."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            cwd=_ROOT,
            env=os.environ | environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not answers(ready_url):
            if process.poll() is not None or time.monotonic() > deadline:
                sys.stderr.write(log.read_text(errors="replace")[-6000:])
                raise RuntimeError(f"{command[2]} is not ready")
            time.sleep(0.5)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
        for pid in below(process.pid):
            os.kill(pid, signal.SIGKILL)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.HTTPError):
        return False


def engine_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """The same for every side."""
    return (REHEARSAL_ARGUMENTS if options.rehearse else ENGINE_ARGUMENTS) | options.engine_args


class Report:
    """Every figure, written as soon as it is known; with the arguments that a call has of its own."""

    def __init__(self, path: Path, engine_args: dict[str, Any]) -> None:
        self._path = path
        self._common = {"engine_args": engine_args} if engine_args else {}
        self.figures: list[dict[str, Any]] = []

    def add(self, side: str, **figures: Any) -> None:
        self.figures.append({"side": side, **figures, **self._common})
        self._path.write_text(json.dumps(self.figures, indent=1))
        print(side, json.dumps(figures), flush=True)


def measure(
    client: Path, port: int, path: str, body: dict[str, Any], streams: int, pid: int
) -> dict[str, Any]:
    """One burst of streams, all of whose tokens were counted."""
    before = cpu_seconds(pid)
    done = subprocess.run(
        [client, "127.0.0.1", str(port), path, str(streams), str(OUTPUT_TOKENS), str(_RUN_SECONDS), "any"],
        input=json.dumps(body).encode(),
        capture_output=True,
        check=True,
    )
    after = cpu_seconds(pid)
    told = json.loads(done.stdout)
    first = told["time_to_first_token"]
    tokens = told["tokens"]
    return {
        "streams": streams,
        "whole": told["whole"],
        "refused": told["refused"],
        "tokens_per_second": tokens / told["seconds"],
        "time_to_first_token": summary(first) if first else None,
        "gap": told["gap"],
        "chunks_per_token": told["chunks"] / max(tokens, 1),
        "cpu_us_per_token": cpu_per_token(before, after, tokens),
    }


def target_of_checkout(place: Path, *, simulate: bool) -> Path:
    """What `unpack.sh` makes on a machine with a GPU, of this checkout and vLLM's CPU build (`make test-vllm`)."""
    build = _ROOT / ".build"
    python = place / "home/engines/vllm/bin/python"
    python.parent.mkdir(parents=True)
    for part in ("triton", "bridge"):
        (place / "home" / part).symlink_to(build / part)
    real = f"{build}/test-vllm/bin/python"
    simulated = (
        f'case $1 in -m) exec {real} -m tests.gpu.serving.simulated "$@" ;; esac\n' if simulate else ""
    )
    python.write_text(f'#!/bin/sh\n{simulated}exec {real} "$@"\n')
    python.chmod(0o755)
    return place


@contextmanager
def watched(options: argparse.Namespace, report: Report, side: str, streams: int, pid: int) -> Iterator[None]:
    """See where each process of a session spends its time."""
    directory = options.log / f"{side}-{streams}"
    directory.mkdir(exist_ok=True)

    def tell(name: str, figures: dict[str, Any]) -> None:
        report.add(f"{side}, profile", streams=streams, process=name, **figures)

    with profiled(options.profile, processes_by_role(pid), directory, tell):
        yield


def run_runner(options: argparse.Namespace, report: Report, client: Path, scratch: Path) -> None:
    target = options.target
    engine = write_engine(scratch / "engine", engine_arguments(options), rehearsal=options.rehearse)
    port = free_port()
    environment = {
        "COG_TRITON_HOME": str(target / "home"),
        "PYTHONPATH": os.pathsep.join(
            [*([str(_NVML)] if options.without_gpu else []), str(_ROOT), str(target / "site")]
        ),
        "PYTHONSAFEPATH": "1",
        "COG_WEIGHTS": str(engine),
        "WEIGHTS_CACHE": str(scratch / "weights"),
        "END_ID": "-1",
        "SERVED_MODEL_NAME": MODEL_NAME,
    }
    started = time.monotonic()
    command = [sys.executable, "-m", "runner.lifecycle", "--host", "127.0.0.1", "--port", str(port)]
    command.append("--end-on-failure")
    with server(
        command, environment, options.log / "runner.log", f"http://127.0.0.1:{port}/health/ready"
    ) as pid:
        report.add("start", seconds=round(time.monotonic() - started, 1))
        names = below(pid)
        holders = [f"{line} {names.get(int(line.split(',')[0]), '')[:80]}" for line in compute_processes()]
        report.add("gpu processes", told=holders)
        bodies = {
            "cog": ("/predictions", cog_body()),
            "openai": ("/v1/completions", openai_body()),
        }
        for path, body in bodies.values():
            measure(client, port, path, body, 8, pid)
        for streams in options.streams * options.repeat:
            for name, (path, body) in bodies.items():
                report.add(f"runner, {name}", **measure(client, port, path, body, streams, pid))
        if options.profile:
            streams = max(options.streams)
            with watched(options, report, "runner", streams, pid):
                measure(client, port, "/v1/completions", openai_body(), streams, pid)
        if "greedy" in options.check:
            (scratch / "greedy.json").write_text(json.dumps(greedy_tokens(port)))
        count, tokens = (32, 300) if options.rehearse else (256, 600)
        body = openai_body() | {"max_tokens": tokens, "ignore_eos": True}
        if "cancel" in options.check:
            report.add("half cancelled", **asyncio.run(cancel_half(port, body, count)))
        for part in options.kill:
            victim = next(pid for pid, name in below(pid).items() if part in name and "/sh" not in name)
            report.add(f"{part} killed", **asyncio.run(kill(port, victim, body, count // 4)))
            report.add("runner, openai", **measure(client, port, "/v1/completions", openai_body(), 64, pid))
    time.sleep(2)
    report.add("after the end", gpu_processes=compute_processes(), gpu_memory_mib=gpu_memory())


def run_async_llm(options: argparse.Namespace, report: Report, scratch: Path) -> None:
    # The runner's own, if it was there before: vLLM keeps what it compiles by the model's path, too.
    unpacked = next((scratch / "weights").glob("*/engine/config.json"), None)
    model = unpacked.parent if unpacked else write_model(scratch / "direct", rehearsal=options.rehearse)
    expected = scratch / "greedy.json"
    streams = options.streams * options.repeat
    last = max(options.streams)
    done = subprocess.Popen(
        [
            str(options.target / "home/engines/vllm/bin/python"),
            "-m",
            "tests.gpu.serving.direct",
            *("--model", str(model), "--arguments", json.dumps(engine_arguments(options))),
            *("--streams", *map(str, [*streams, *([last] if options.profile else [])])),
            *(["--greedy"] if expected.exists() else []),
        ],
        cwd=_ROOT,
        env=os.environ | {"PYTHONPATH": f"{_ROOT}:{options.target / 'site'}"},
        stdout=subprocess.PIPE,
        stderr=(options.log / "async_llm.log").open("wb"),
        text=True,
        start_new_session=True,
    )
    assert done.stdout is not None
    used: dict[str, float] | None = None
    runs = 0
    with ExitStack() as watching:
        for line in done.stdout:
            if not line.startswith("{"):
                continue
            told = json.loads(line)
            if (tokens := told.get("greedy")) is not None:
                ours = json.loads(expected.read_text())
                equal = sum(one == other for one, other in zip(ours, tokens, strict=True))
                report.add("greedy", prompts=len(tokens), equal=equal, tokens=sum(map(len, ours)))
                continue
            before, used = used, cpu_seconds(done.pid)
            if before is not None and runs <= len(streams):
                made = told["streams"] * OUTPUT_TOKENS
                report.add("async_llm", **told, cpu_us_per_token=cpu_per_token(before, used, made))
            watching.close()
            if options.profile and runs == len(streams):
                watching.enter_context(watched(options, report, "async_llm", last, done.pid))
            runs += 1
    done.wait(60)


def run_serve(
    options: argparse.Namespace, report: Report, client: Path, scratch: Path, *, rust: bool
) -> None:
    side = "serve_rust" if rust else "serve"
    model = write_model(scratch / side)
    port = free_port()
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(model), "--port", str(port)]
    command += ["--host", "127.0.0.1", "--served-model-name", MODEL_NAME]
    for name, value in engine_arguments(options).items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            command.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            command += [f"--{flag}", str(value)]
    environment = {
        "PYTHONPATH": str(options.target / "site"),
        "VLLM_USE_FLASHINFER_SAMPLER": "0",
        "VLLM_USE_DEEP_GEMM": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_USE_RUST_FRONTEND": str(int(rust)),
    }
    body = openai_body() | {"ignore_eos": True}
    with server(command, environment, options.log / f"{side}.log", f"http://127.0.0.1:{port}/health") as pid:
        measure(client, port, "/v1/completions", body, 8, pid)
        for streams in options.streams * options.repeat:
            report.add(side, **measure(client, port, "/v1/completions", body, streams, pid))


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.gpu.serving")
    parser.add_argument("--target", type=Path, help="where the payload lies; without it, this checkout")
    parser.add_argument("--side", nargs="+", default=["runner", "async_llm"])
    parser.add_argument("--streams", nargs="+", type=int, default=[8, 64, 256, 512])
    parser.add_argument("--repeat", type=int, default=2, help="how often each number of streams is run")
    parser.add_argument("--check", nargs="*", default=[], choices=["greedy", "cancel"])
    parser.add_argument(
        "--kill", nargs="*", default=[], metavar="PART", help="of a command line, after measuring, under load"
    )
    parser.add_argument("--profile", type=Path, metavar="PY_SPY", help="the program that watches")
    parser.add_argument(
        "--engine-args", type=json.loads, default={}, metavar="JSON", help="further arguments, for every side"
    )
    parser.add_argument("--rehearse", action="store_true", help="a tiny model, for a machine without a GPU")
    parser.add_argument(
        "--simulate", action="store_true", help="no model: steps that last as on an H200, without a GPU"
    )
    parser.add_argument("--log", type=Path, default=Path("/tmp/serving"))
    options = parser.parse_args()
    options.without_gpu = options.rehearse or options.simulate
    options.log.mkdir(parents=True, exist_ok=True)
    scratch = options.log / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    if options.target is None:
        options.target = target_of_checkout(scratch / "target", simulate=options.simulate)
    options.target = options.target.resolve()
    sys.path.append(str(options.target / "site"))  # what the machine's Python lacks
    client = scratch / "streams"
    source = _ROOT / "tests/performance/client/streams.c"
    subprocess.run(["gcc", "-O2", "-o", str(client), str(source)], check=True)
    report = Report(options.log / "report.json", options.engine_args)
    report.add("machine", **machine(options.target))
    for side in options.side:
        try:
            match side:
                case "runner":
                    run_runner(options, report, client, scratch)
                case "async_llm":
                    run_async_llm(options, report, scratch)
                case "serve" | "serve_rust":
                    run_serve(options, report, client, scratch, rust=side == "serve_rust")
        except (RuntimeError, subprocess.CalledProcessError, ValueError) as failed:
            report.add(f"{side} failed", told=str(failed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
