"""`make demo`: a model becomes an engine, the engine is served, a prompt is answered, everything is stopped.

Builder and runner run as they do in the images, and are asked over Cog's HTTP API.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections import deque
from contextlib import ExitStack, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import proxy_bypass

import yaml
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from builder.sources.model import local_folder
from cli.report_file import check_report, write_report
from demo.cog_client import PredictionClient
from demo.cog_server import CogServer
from shared.errors import CogTritonError, PredictionFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
OWN_MODEL = HERE / "model"
PROMPTS = HERE / "prompts.json"
_READY_SECONDS = 600
_SHOWN_LINES = 20
_END_SECONDS = 1
_HOST = "127.0.0.1"

console = Console(highlight=False)


class ServerOutput:
    """What a Cog server prints: its end is kept for when something fails, and its progress shown."""

    def __init__(self) -> None:
        self.last_progress = ""
        self._last_lines: deque[str] = deque(maxlen=_SHOWN_LINES)
        self._read, self.descriptor = os.pipe()
        self._reader = threading.Thread(target=self._follow, daemon=True)
        self._reader.start()

    def _follow(self) -> None:
        with os.fdopen(self._read, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                self._last_lines.append(line)
                try:
                    message = json.loads(line)["fields"]["message"]
                except (ValueError, KeyError, TypeError):
                    continue
                if "% of " in message:
                    self.last_progress = message

    def show_end(self) -> None:
        """Print the last lines on stderr; those of a server that has just ended are waited for."""
        self._reader.join(_END_SECONDS)
        sys.stderr.write("".join(["The last lines of the server's log:\n", *self._last_lines]))


class Steps:
    """Names each step, shows a bar while it runs, and remembers how long it took.

    The log of a server goes when the demo ends, and is shown if an error refers to it.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, name: str, output: ServerOutput | None = None) -> Iterator[None]:
        started = time.monotonic()
        if not console.is_terminal:
            console.print(f"{name} ...")
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
        )
        try:
            with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
                task = bar.add_task(name, total=None, note="")
                finished = threading.Event()

                def refresh() -> None:
                    while not finished.wait(0.2):
                        bar.update(task, note=output.last_progress if output else "")

                watcher = threading.Thread(target=refresh, daemon=True)
                watcher.start()
                try:
                    yield
                finally:
                    finished.set()
                    watcher.join()
        except CogTritonError as error:
            if output and (isinstance(error, PredictionFailed) or " log" in error.remedy):
                output.show_end()
            raise
        self.seconds[name] = time.monotonic() - started
        console.print(f"{name}: {self.seconds[name]:.1f} s")


@contextmanager
def file_server(directory: Path) -> Iterator[str]:
    """Serve a directory on loopback: where the config and the engine come from."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer((_HOST, 0), partial(Quiet, directory=directory)) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://{_HOST}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def build_engine(config_url: str, directory: Path, steps: Steps) -> None:
    """Have the builder make `directory`/engine.tar."""
    output = ServerOutput()
    with ExitStack() as stack:
        with steps.step("start the builder", output):
            environment = {"BUILDER_OUTPUT_DIR": str(directory)}
            builder = stack.enter_context(
                CogServer("builder", environment=environment, output=output.descriptor)
            )
            os.close(output.descriptor)
            builder.wait_ready(_READY_SECONDS)
        with steps.step("build the engine", output):
            PredictionClient(builder.url).predict({"config": config_url})


def stream_answer(runner: CogServer, prompt: str) -> tuple[str, Table]:
    """Print the answer to `prompt` as it comes; return it, and a table of its speed."""
    inputs = {"prompt": prompt, "max_tokens": 64, "temperature": 0}
    started = time.monotonic()
    first_token = None
    metrics: dict[str, float] = {}
    text = ""
    console.print(Text(f"\n{prompt}", style="bold"), end="")
    for event in PredictionClient(runner.url).events(inputs):
        if event.kind == "output":
            first_token = first_token or time.monotonic()
            text += event.data["chunk"]
            console.print(event.data["chunk"], end="", markup=False, soft_wrap=True)
        elif event.kind == "completed":
            if event.data["status"] != "succeeded":
                raise SystemExit(f"\nThe prediction failed: {event.data.get('error')}")
            metrics = event.data["metrics"]
    ended = time.monotonic()
    console.print("\n")
    first = first_token or ended
    tokens = int(metrics["output_token_count"])
    table = Table("figure", "value")
    table.add_row("time to first token", f"{1000 * (first - started):.1f} ms")
    table.add_row("tokens", f"{tokens}, after a prompt of {int(metrics['input_token_count'])}")
    table.add_row("tokens per second", f"{(tokens - 1) / max(ended - first, 1e-6):.0f}")
    return text, table


def demo(model: str, prompt: str, known_text: str | None, picture: Path | None) -> None:
    """Run the whole path for `model`, and draw it. Exits with status 1 if the answer is not `known_text`.

    Raises CogTritonError for what goes wrong on the way.
    """
    if picture is not None:
        check_report(picture)
    steps = Steps()
    with tempfile.TemporaryDirectory(prefix="cog-triton-demo-") as temporary, ExitStack() as stack:
        directory = Path(temporary)
        config = {"engine": "ctranslate2", "model": model, "quantization": "float32"}
        (directory / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
        files = stack.enter_context(file_server(directory))
        build_engine(f"{files}/config.yaml", directory, steps)
        output = ServerOutput()
        with steps.step("start the runner", output):
            environment = {
                "COG_WEIGHTS": f"{files}/engine.tar",
                "WEIGHTS_CACHE": str(directory / "weights"),
            }
            runner = stack.enter_context(
                CogServer("runner", concurrency=8, environment=environment, output=output.descriptor)
            )
            os.close(output.descriptor)
            runner.wait_ready(_READY_SECONDS)
        text, table = stream_answer(runner, prompt)
    for name, seconds in steps.seconds.items():
        table.add_row(name, f"{seconds:.2f} s")
    console.print(table)
    if picture is not None:
        draw(picture, steps, prompt, text, table)
    if known_text is not None and text != known_text:
        raise SystemExit(f"This is not the known greedy text of the model, which is:\n{known_text}")


def draw(path: Path, steps: Steps, prompt: str, text: str, table: Table) -> None:
    """Write what was printed as an SVG that takes nothing from elsewhere. Raises OutputRefused."""
    page = Console(record=True, width=100, file=io.StringIO(), highlight=False)
    page.print("[green]$[/green] make demo")
    for name, seconds in steps.seconds.items():
        page.print(f"{name}: {seconds:.1f} s")
    page.print(Text.assemble("\n", (prompt, "bold"), text, "\n"))
    page.print(table)
    svg = page.export_svg(title="cog-triton")
    write_report(path, re.sub(r"@font-face {.*?}\s*", "", svg, flags=re.DOTALL))


def _pass_by_proxies() -> None:
    """Have everybody reach the servers here directly: a proxy of the environment cannot."""
    if not proxy_bypass(_HOST):
        others = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
        both = f"{others},{_HOST}" if others else _HOST
        os.environ |= {"no_proxy": both, "NO_PROXY": both}


def utf8(text: str) -> str:
    """The text. Raises ValueError for bytes of the command line that are not UTF-8."""
    text.encode()
    return text


def main() -> None:
    """Read the command line and run the demo."""
    parser = argparse.ArgumentParser(prog="python -m demo", description="Build, serve and ask a model.")
    parser.add_argument("--model", help="a folder, or a model on the hub, instead of the project's own")
    parser.add_argument("--prompt", type=utf8, help="what to ask it")
    parser.add_argument("--picture", type=Path, help="an SVG to write, of what is printed")
    arguments = parser.parse_args()
    own = json.loads(PROMPTS.read_text())[0]
    prompt = arguments.prompt or own["prompt"]
    is_own = arguments.model is None and prompt == own["prompt"]
    try:
        folder = local_folder(arguments.model, Path.cwd()) if arguments.model else OWN_MODEL
        _pass_by_proxies()
        demo(str(folder or arguments.model), prompt, own["text"] if is_own else None, arguments.picture)
    except CogTritonError as error:
        raise SystemExit(str(error)) from None
    except KeyboardInterrupt:
        raise SystemExit(128 + signal.SIGINT) from None


if __name__ == "__main__":
    main()
