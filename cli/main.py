"""The command `cog-triton`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from shared.errors import CogTritonError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Turn a Hugging Face model and a YAML config into a served engine.",
)


@app.command()
def build(
    config: Annotated[str, typer.Argument(help="The build config: a path, or an http(s) or data: URL.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The archive to write.")],
) -> None:
    """Build an engine: `cog-triton build config.yaml -o engine.tar`.

    A private or gated model is fetched with the token in HF_TOKEN.
    """
    from builder.pipeline import build as build_engine
    from shared.logs import configure_logging, register_secret
    from shared.progress import stderr_progress
    from shared.sizes import readable

    token = os.environ.get("HF_TOKEN")
    register_secret(token or "")
    configure_logging()
    signal.signal(signal.SIGTERM, _end)
    manifest = build_engine(config, output, hf_token=token, progress=stderr_progress())
    typer.echo(f"{output}: {manifest.engine} engine of {manifest.model}, {readable(manifest.total_size)}")


@app.command()
def check(
    config: Annotated[str, typer.Argument(help="The build config: a path, or an http(s) or data: URL.")],
    json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    gpus: Annotated[int | None, typer.Option(min=0, help="GPUs of the machine that builds.")] = None,
) -> None:
    """Say all that is wrong with a config before anything is fetched: `cog-triton check config.yaml`.

    Of the model only the headers of its weights are read. Exit status 1 when a build cannot succeed.
    """
    from cli.check import check as check_config

    raise typer.Exit(check_config(config, as_json=json, gpus=gpus, token=os.environ.get("HF_TOKEN")))


@app.command()
def serve(
    engine: Annotated[str, typer.Argument(help="URL or path of an engine.tar, or a directory with one.")],
    port: Annotated[int, typer.Option(help="The port of the HTTP API.")] = 5000,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    concurrency: Annotated[int, typer.Option(help="Predictions at the same time.")] = 80,
) -> None:
    """Serve an engine: `cog-triton serve engine.tar`.

    Then: curl -N localhost:5000/predictions -H 'Accept: text/event-stream'
    -H 'Content-Type: application/json' -d '{"input": {"prompt": "Hello"}}'
    """
    from shared.cog.server import refuse_used_port, server_command, server_environment
    from shared.layout import PROJECT_ROOT

    refuse_used_port(port)
    weights = engine if "://" in engine else str(Path(engine).resolve())
    environment = {**os.environ, **server_environment("runner", port, concurrency), "COG_WEIGHTS": weights}
    command = server_command("runner", host)
    os.chdir(PROJECT_ROOT / "runner")
    os.execve(command[0], command, environment)  # noqa: S606 - no shell is what we want


@app.command()
def instantiate(
    config: Annotated[str, typer.Argument(help="The build config with the section `instantiate`.")],
    base: Annotated[str | None, typer.Option(help="The runner image; default: `base_model`.")] = None,
    dest: Annotated[str | None, typer.Option(help="Where to push; default: `staging_dest`.")] = None,
) -> None:
    """Push a model's image: `cog-triton instantiate config.yaml --base HOST/RUNNER --dest HOST/MODEL`.

    The image has the runner's layers, and the weights and prompts of the config in its environment.
    """
    from cli.instantiate import instantiate as push_image

    typer.echo(push_image(config, base, dest))


@app.command()
def inspect(
    engine: Annotated[str, typer.Argument(help="Path or http(s) URL of an engine.tar.")],
) -> None:
    """Print the manifest of an engine: `cog-triton inspect engine.tar`.

    Of what a URL names only the beginning is fetched.
    """
    from cli.inspect import manifest_of

    manifest = manifest_of(engine)
    typer.echo("no manifest" if manifest is None else manifest.model_dump_json(indent=2))


def _end(number: int, _frame: object) -> None:
    """Unwind: what a build started and wrote is ended and removed on the way."""
    sys.exit(128 + number)


@app.command()
def model_repository(
    engine: Annotated[Path, typer.Option(help="The directory of an unpacked engine.tar.")],
    out: Annotated[Path, typer.Option(help="The directory to write; tritonserver's --model-repository.")],
) -> None:
    """Write a model repository for your own Triton: `cog-triton model-repository --engine DIR --out DIR`.

    It prints the command that serves it.
    """
    from runner.triton.model_repository import BridgeParameters, write_model_repository
    from shared.artifact import EngineDirectory
    from shared.layout import PROJECT_ROOT, Layout

    directory = EngineDirectory(engine.resolve())
    layout = Layout.current()
    kind = "tensorrt_llm" if directory.manifest is None else directory.manifest.engine
    parameters = BridgeParameters(
        engine_python=layout.engine_python(kind),
        engine_kind=kind,
        engine_dir=directory.path,
        engine_path=PROJECT_ROOT,
    )
    write_model_repository(out, parameters)
    typer.echo(f"tritonserver --model-repository={out} --backend-directory={layout.backend_directory}")


def main() -> None:
    """Run the command line; a coded error is one line on stderr and exit status 1."""
    try:
        app()
    except CogTritonError as error:
        typer.secho(str(error), fg="red", err=True)
        sys.exit(1)
