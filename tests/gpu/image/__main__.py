"""A runner's image serves on a GPU, with no compiler but its own: `python3 -m tests.gpu.image DIR --out OUT`

    mkdir -p DIR && cat image.part* | tar -xJf - -C DIR       # as root, of `tests.gpu.image.payload`
    python3 -m tests.gpu.image DIR --target TARGET --machine-site /opt/torch/.venv/lib/python3.12/site-packages --out OUT

Puts the image together, and starts its own command as its own user in a container with a read-only root
(container.py): the demo's model, whose greedy texts are known, and the shape of an 8B model, twice, the second
time with what the first compiled. Streams through both APIs, and counts every token. Writes OUT/report.json
after each figure; a step that fails is told, with the end of the container's log, and the next one is made.
Needs root.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.gpu.image.container import description
from tests.gpu.image.machine import Assembled, compiled
from tests.gpu.serving.load import Report, bursts
from tests.gpu.serving.machine import MULTICAST_OFF, below, compute_processes
from tests.gpu.serving.model import MODEL_NAME, Burst

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[3]
_PORT = 5000  # the image's own
_READY_SECONDS = 240
_END_SECONDS = 30
_ANSWER_SECONDS = 60
_CACHE = "var/cache/cog-triton"
_ENGINE = "engine"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.image")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--target", type=Path, required=True, help="where tests.gpu.serving's payload lies")
    parser.add_argument("--machine-site", type=Path, required=True, help="packages of the machine's PyTorch")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--gpu", default="0", help="the number of the GPU that it may use")
    parser.add_argument("--streams", nargs="+", type=int, default=[1, 64])
    parser.add_argument("--env", nargs="*", default=[], metavar="NAME=VALUE", help="further variables")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))  # and the container with it
    options.out.mkdir(parents=True, exist_ok=True)
    report = Report(options.out, {})
    image = Assembled(options.directory.resolve(), options.target.resolve(), options.machine_site.resolve())
    facts = image.facts
    report.add("image", name=facts["name"], digest=facts["digest"], layers=facts["layers"])
    report.add("bytes", **facts["bytes"])
    report.add("left out", **facts["left out"])
    started = time.monotonic()
    report.add("put together", **image.complete())
    report.add("driver", libraries=image.add_driver(), seconds=round(time.monotonic() - started, 1))
    report.add("programs that compile, in the whole image", paths=image.compilers())
    client = options.out / "streams"
    source = ROOT / "tests/performance/client/streams.c"
    subprocess.run(["gcc", "-O2", "-o", str(client), str(source)], check=True)  # outside of the container
    with report.step("the demo's model"), _container(options, image, report, "demo"):
        _texts(report, json.loads((ROOT / "demo/prompts.json").read_text()))
    for start in ("first", "second"):
        with report.step(f"the 8B shape, {start} start"), _container(options, image, report, "8b") as pid:
            bursts(report, client, _PORT, pid, map(Burst, options.streams))
    report.add("after the end", gpu_processes=compute_processes())
    client.unlink()
    return 0


@contextmanager
def _container(options: argparse.Namespace, image: Assembled, report: Report, engine: str) -> Iterator[int]:
    """A container that is READY; what is known of it is reported. All its processes end with it."""
    cache = options.directory.resolve() / "cache"
    cache.mkdir(exist_ok=True)
    os.chown(cache, 1000, 0)
    (image.root / _ENGINE).mkdir(exist_ok=True)
    environment = {
        "COG_WEIGHTS": f"/{_ENGINE}/{engine}.tar",
        "CUDA_VISIBLE_DEVICES": options.gpu,
        "END_ID": "-1" if engine == "8b" else "",
        "SERVED_MODEL_NAME": MODEL_NAME,
        **MULTICAST_OFF,
        "SPT_NOENV": "1",  # so that the environment of vLLM's processes can be read
        "ENGINE_ENVIRONMENT": "SPT_NOENV,NVSHMEM_DISABLE_NVLS",
        **dict(variable.split("=", 1) for variable in options.env),
    }
    told = description(
        image.facts["config"],
        image.root,
        image.mounted,
        {_CACHE: str(cache), _ENGINE: str(options.directory.resolve() / "engines")},
        {name: value for name, value in environment.items() if value},
    )
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", sys.executable, "-m"]
    started = time.monotonic()
    with (options.out / f"{engine}.log").open("ab") as log:
        process = subprocess.Popen(
            [*command, "tests.gpu.image.container"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    assert process.stdin is not None
    process.stdin.write(told.encode())
    process.stdin.close()
    try:
        while (status := _status()) != "READY":
            too_late = time.monotonic() - started > _READY_SECONDS
            if process.poll() is not None or too_late or status == "SETUP_FAILED":
                raise RuntimeError(f"it is not ready, but {status}")
            time.sleep(0.2)
        report.add("ready", engine=engine, seconds=round(time.monotonic() - started, 1))
        names = {pid: name for pid, name in below(process.pid).items() if pid != process.pid}
        report.add("processes", told=[image.process(pid, name) for pid, name in sorted(names.items())])
        report.add("gpu processes", told=compute_processes())
        report.add("compiled", **compiled(cache / "compiled"))
        yield process.pid
    finally:
        _end(process)
        report.add("ended", left=list(below(process.pid).values()))


def _status() -> str:
    """Of the server, by its own word."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{_PORT}/health-check", timeout=5) as answer:
            return str(json.load(answer)["status"])
    except OSError:
        return "not there"


def _end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM to process 1 of the container, as `docker stop` sends it."""
    with suppress(OSError, subprocess.TimeoutExpired):  # it may have ended by itself
        for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGTERM)
        process.wait(_END_SECONDS)
    process.kill()  # and with it, process 1
    process.wait()


def _texts(report: Report, prompts: list[dict[str, Any]]) -> None:
    """The demo's prompts through both APIs, streamed: which texts are those that the model is known for."""
    for api, stream in {"cog": _cog, "openai": _openai}.items():
        equal, tokens, others = 0, 0, []
        started = time.monotonic()
        for prompt in prompts:
            text, pieces, count = stream(prompt)
            tokens += count
            equal += text == prompt["text"]
            if text != prompt["text"]:
                others.append([prompt["prompt"], text, prompt["text"]])
            if count > 1 and pieces < 2:
                others.append([prompt["prompt"], "in one piece"])
        seconds = round(time.monotonic() - started, 2)
        report.add(
            f"texts, {api}", prompts=len(prompts), equal=equal, tokens=tokens, seconds=seconds, others=others
        )


def _events(path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{_PORT}{path}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Accept": "text/event-stream"},
    )
    with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:
        for line in answer:
            if line.startswith(b"data:") and line != b"data: [DONE]\n":
                event: dict[str, Any] = json.loads(line[5:])
                yield event


def _cog(prompt: dict[str, Any]) -> tuple[str, int, int]:
    """The text, the pieces that it came in, and its tokens as the server counts them."""
    inputs = {"prompt": prompt["prompt"], "max_tokens": prompt["max_tokens"], "temperature": 0}
    pieces, tokens = [], 0
    for event in _events("/predictions", {"input": inputs}):
        if "chunk" in event:
            pieces.append(event["chunk"])
        elif event.get("status") == "succeeded":
            tokens = event["metrics"]["output_token_count"]
    return "".join(pieces), len(pieces), int(tokens)


def _openai(prompt: dict[str, Any]) -> tuple[str, int, int]:
    """The same."""
    body = {
        "model": MODEL_NAME,
        "prompt": prompt["prompt"],
        "max_tokens": prompt["max_tokens"],
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    pieces, tokens = [], 0
    for event in _events("/v1/completions", body):
        pieces += [choice["text"] for choice in event["choices"] if choice["text"]]
        tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
    return "".join(pieces), len(pieces), tokens


if __name__ == "__main__":
    sys.exit(main())
