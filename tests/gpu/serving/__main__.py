"""Tokens per second on a GPU, one side after the other: `python -m tests.gpu.serving --target DIR --side SIDE...`

DIR is where the payload was unpacked. Sides: `runner` (our front, both APIs), `async_llm` (vLLM's engine without
a server), `serve` and `serve_rust` (`vllm serve` with either front), `hosts` (our front, on two hosts: hosts.py).
Each is given every number of streams, all at once, of the same 128 tokens in and 256 out; every token is counted.
`--check` looks at what else has to hold of the runner (tests/support/under_load.py); `--profile` has the first two
watched once more, with the most streams. Writes a JSON report after each figure.

With `--gpus 2` every side uses both GPUs; with `--weights DIR` all load the same (weights.py), so that `--check greedy`
can compare with the tokens that an earlier call left in `--expected`.

Without a GPU `runner`, `async_llm` and `hosts` run from a checkout after `make test-vllm`, without DIR: the first two
with `--simulate`, whose steps last as on an H200 and have no model in them, all with `--rehearse`, which has a tiny one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.gpu.serving.greedy import against, compared, greedy_texts
from tests.gpu.serving.hosts import run_hosts
from tests.gpu.serving.load import ROOT, Report, bursts, end, free_port, measure, openai_body, server
from tests.gpu.serving.machine import (
    MULTICAST_OFF,
    below,
    compute_processes,
    cpu_per_token,
    cpu_seconds,
    machine,
    multicast_is_off,
    processes_by_role,
    transports,
)
from tests.gpu.serving.model import (
    ENGINE_ARGUMENTS,
    MODEL_NAME,
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    REHEARSAL_ARGUMENTS,
    Burst,
    write_engine,
    write_model,
)
from tests.gpu.serving.profile import profiled
from tests.gpu.serving.stand_ins import allow_locked_memory, on_cpu, target_of_checkout
from tests.support.under_load import cancel_half, gpu_memory, kill

SIDES = ("runner", "async_llm", "serve", "serve_rust", "hosts")

if TYPE_CHECKING:
    from collections.abc import Iterator


def engine_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """The same for every side."""
    arguments = REHEARSAL_ARGUMENTS if options.rehearse else ENGINE_ARGUMENTS
    several = {"tensor_parallel_size": options.gpus} if options.gpus > 1 else {}
    loaded = {"load_format": "auto"} if options.weights else {}
    return arguments | several | loaded | options.engine_args


def runner_environment(options: argparse.Namespace, scratch: Path) -> dict[str, str]:
    """What a runner is told of the engine, which is made here."""
    arguments = engine_arguments(options)
    engine = write_engine(scratch / "engine", arguments, options.weights, rehearsal=options.rehearse)
    return {
        "COG_TRITON_HOME": str(options.target / "home"),
        "PYTHONPATH": str(ROOT),
        "PYTHONSAFEPATH": "1",
        "COG_WEIGHTS": str(engine),
        "WEIGHTS_CACHE": str(scratch / "weights"),
        "END_ID": "-1",
        "SERVED_MODEL_NAME": MODEL_NAME,
        # For `multicast_is_off`.
        "SPT_NOENV": "1",
        "ENGINE_ENVIRONMENT": "SPT_NOENV",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_FILE": str(options.log / "nccl-%h-%p.txt"),
    }


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
    port = free_port()
    environment = runner_environment(options, scratch)
    started = time.monotonic()
    command = [sys.executable, "-m", "runner.lifecycle", "--host", "127.0.0.1", "--port", str(port)]
    command.append("--end-on-failure")
    with server(
        command, environment, options.log / "runner.log", f"http://127.0.0.1:{port}/health/ready"
    ) as pid:
        report.add("start", seconds=round(time.monotonic() - started, 1))
        names = below(pid)
        if options.gpus > 1:
            report.add("multicast is off", processes=multicast_is_off(names))
            report.add("nccl", **transports(options.log))
        holders = [f"{line} {names.get(int(line.split(',')[0]), '')[:80]}" for line in compute_processes()]
        report.add("gpu processes", told=holders)
        with report.step("bursts"):
            bursts(report, client, port, pid, options.bursts)
        if options.profile:
            streams = max(options.streams)
            with report.step("profile"), watched(options, report, "runner", streams, pid):
                measure(client, port, "/v1/completions", openai_body(), streams, pid)
        if "greedy" in options.check:
            with report.step("greedy"):
                texts = greedy_texts(port)
                if told := against(options.expected, texts):
                    report.add("greedy", **told)
                (scratch / "greedy.json").write_text(json.dumps(texts))
        count, tokens_each = (32, 300) if options.rehearse else (256, 600)
        body = openai_body() | {"max_tokens": tokens_each, "ignore_eos": True}
        if "cancel" in options.check:
            with report.step("cancel"):
                report.add("half cancelled", **asyncio.run(cancel_half(port, body, count)))
        streams = min(64, max(options.streams))
        for part in options.kill:
            with report.step(f"{part} killed"):
                victim = next(pid for pid, name in below(pid).items() if part in name and "/sh" not in name)
                report.add(f"{part} killed", **asyncio.run(kill(port, victim, body, count // 4)))
                report.add(
                    "runner, openai", **measure(client, port, "/v1/completions", openai_body(), streams, pid)
                )
    time.sleep(2)
    report.add("after the end", gpu_processes=compute_processes(), gpu_memory_mib=gpu_memory())


def run_async_llm(options: argparse.Namespace, report: Report, scratch: Path) -> None:
    # The runner's own, if it was there before: vLLM keeps what it compiles by the model's path, too.
    unpacked = next((scratch / "weights").glob("*/engine/config.json"), None)
    model = (
        unpacked.parent
        if unpacked
        else write_model(scratch / "direct", options.weights, rehearsal=options.rehearse)
    )
    expected = scratch / "greedy.json"
    wanted = [*options.bursts, *([Burst(max(options.streams))] if options.profile else [])]
    done = subprocess.Popen(
        [
            str(options.target / "home/engines/vllm/bin/python"),
            "-m",
            "tests.gpu.serving.direct",
            *("--model", str(model), "--arguments", json.dumps(engine_arguments(options))),
            *("--bursts", json.dumps(wanted)),
            *(["--greedy"] if expected.exists() else []),
        ],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
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
            if (texts := told.get("greedy")) is not None:
                report.add("greedy", **compared(json.loads(expected.read_text()), texts))
                continue
            before, used = used, cpu_seconds(done.pid)
            if before is not None and runs <= len(options.bursts):
                made = told["streams"] * OUTPUT_TOKENS
                report.add("async_llm", **told, cpu_us_per_token=cpu_per_token(before, used, made))
            watching.close()
            if options.profile and runs == len(options.bursts):
                watching.enter_context(watched(options, report, "async_llm", wanted[-1].streams, done.pid))
            runs += 1
    try:
        done.wait(60)
    finally:
        end(done.pid)


def run_serve(
    options: argparse.Namespace, report: Report, client: Path, scratch: Path, *, rust: bool
) -> None:
    side = "serve_rust" if rust else "serve"
    model = write_model(scratch / side, options.weights)
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
        "VLLM_USE_FLASHINFER_SAMPLER": "0",
        "VLLM_USE_DEEP_GEMM": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_USE_RUST_FRONTEND": str(int(rust)),
    }

    def body(prompt_tokens: int = PROMPT_TOKENS) -> dict[str, Any]:
        return openai_body(prompt_tokens) | {"ignore_eos": True}

    with server(command, environment, options.log / f"{side}.log", f"http://127.0.0.1:{port}/health") as pid:
        measure(client, port, "/v1/completions", body(), 8, pid)
        for streams, prompt_tokens in options.bursts:
            figures = measure(client, port, "/v1/completions", body(prompt_tokens), streams, pid)
            report.add(side, **figures, prompt_tokens=prompt_tokens)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.serving")
    parser.add_argument("--target", type=Path, help="where the payload lies; without it, this checkout")
    parser.add_argument("--side", nargs="+", default=["runner", "async_llm"], choices=SIDES)
    parser.add_argument("--streams", nargs="+", type=int, default=[8, 64, 256, 512])
    parser.add_argument("--repeat", type=int, default=2, help="how often each number of streams is run")
    parser.add_argument(
        "--prompts",
        nargs="+",
        type=int,
        default=[],
        metavar="TOKENS",
        help="also the most streams with such prompts",
    )
    parser.add_argument("--gpus", type=int, default=1, choices=[1, 2], help="that every side uses")
    parser.add_argument(
        "--weights", type=Path, metavar="DIR", help="what weights.py wrote; default: made-up ones"
    )
    parser.add_argument(
        "--expected", type=Path, metavar="FILE", help="greedy tokens; written if it is not there"
    )
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
    most = max(options.streams)
    options.bursts = [
        *map(Burst, options.streams * options.repeat),
        *(Burst(most, tokens) for tokens in options.prompts * options.repeat),
    ]
    options.without_gpu = options.rehearse or options.simulate
    prepare_several(options)
    options.log = options.log.resolve()
    options.log.mkdir(parents=True, exist_ok=True)
    scratch = options.log / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    if options.target is None:
        options.target = target_of_checkout(scratch / "target", simulate=options.simulate)
    options.target = options.target.resolve()
    if options.without_gpu:
        os.environ |= on_cpu(scratch, rehearse=options.rehearse)
    if options.gpus > 1:
        os.environ |= allow_locked_memory(scratch)
    common = {"engine_args": options.engine_args} if options.engine_args else {}
    if options.weights:
        common["weights"] = "read"
    if options.gpus > 1:
        common["gpus"] = options.gpus
    report = Report(options.log, common)
    report.add("machine", **machine(options.target))
    client = scratch / "streams"
    source = ROOT / "tests/performance/client/streams.c"
    subprocess.run(["gcc", "-O2", "-o", str(client), str(source)], check=True)
    for side in options.side:
        with report.step(side):
            match side:
                case "runner":
                    run_runner(options, report, client, scratch)
                case "async_llm":
                    run_async_llm(options, report, scratch)
                case "serve" | "serve_rust":
                    run_serve(options, report, client, scratch, rust=side == "serve_rust")
                case "hosts":
                    with report.common(hosts=2):
                        run_hosts(options, report, client, runner_environment(options, scratch))
    return 0


def prepare_several(options: argparse.Namespace) -> None:
    """The environment of a call: which GPUs, and for several of them no multicast over NVLink. Raises SystemExit."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is ended
    if "hosts" in options.side and options.gpus == 1:
        sys.exit("the hosts have one GPU each: --gpus 2")
    if options.gpus == 1:
        os.environ["CUDA_VISIBLE_DEVICES"] = "0"
        return
    if any(os.environ.get(name) != value for name, value in MULTICAST_OFF.items()):
        wanted = " ".join(f"{name}={value}" for name, value in MULTICAST_OFF.items())
        sys.exit(f"several GPUs only with NVLink's multicast off: {wanted}")


if __name__ == "__main__":
    sys.exit(main())
