"""The command `cog-triton`."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from cli.measuring import perf, plan
from cli.output import AS_JSON, say, say_error, say_json
from cli.places import absolute, from_here
from cli.streams import prepare_streams
from shared import VERSION
from shared.errors import CogTritonError, GenericError
from shared.signals import ends_held, heeded

EngineName = Literal["ctranslate2", "mock", "tensorrt_llm", "vllm"]
_SERVED = (
    "URL or path of an engine.tar, or a directory that holds an unpacked one. For vLLM also a"
    " model on the hub (owner/name"
    " or owner/name@revision), a folder with a model, a config, or a model repository of Triton's"
    " vLLM backend."
)
_ENGINE = typer.Argument(help=_SERVED)
_MAX_COUNT = 1_000_000  # of GPUs, or of predictions at the same time: far beyond what there can be


class _Commands(TyperGroup):
    """The commands, which tell a wrong value in our words instead of pydantic's."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as wrong:
            from pydantic import ValidationError

            from shared.validation import wanted

            if isinstance(wrong.__cause__, ValidationError):
                detail = wrong.__cause__.errors()[0]
                told = wanted(detail)
                wrong.message = told if detail["type"] == "value_error" else f"it {told}"
            raise


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Turn a Hugging Face model and a YAML config into a served engine.",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cog-triton {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def init(
    config: Annotated[Path, typer.Argument(help="The file to write.")] = Path("config.yaml"),
    engine: Annotated[EngineName, typer.Option(help="What generates the tokens.")] = "ctranslate2",
    model: Annotated[
        str | None, typer.Option(help="A model on the hub, the URL of a tar, or a folder.")
    ] = None,
) -> None:
    """Write a config to start from, every key explained: `cog-triton init config.yaml`.

    Its first line refers to the schema beside it, with which editors complete and check what you type.
    """
    from cli.init import init as write_config

    write_config(config, engine, model)
    typer.echo(f"Wrote {config}. Next: `cog-triton check {shlex.quote(str(config))}`")


@app.command()
def doctor(as_json: Annotated[bool, AS_JSON] = False) -> None:
    """Report what this machine has and lacks for building, serving and images, and what to do about it.

    Exit status 1 when cog-triton does not work here.
    """
    from cli.doctor import CHECKS
    from cli.doctor.report import doctor as report

    raise typer.Exit(report(CHECKS, as_json=as_json))


@app.command()
def build(
    config: Annotated[str, typer.Argument(help="The build config: a path, or an http(s) or data: URL.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The archive to write.")],
    as_json: Annotated[bool, AS_JSON] = False,
) -> None:
    """Build an engine: `cog-triton build config.yaml -o engine.tar`.

    A private or gated model is fetched with the token in HF_TOKEN.
    """
    from builder.pipeline import build as build_engine
    from shared.core_dumps import no_core_dumps
    from shared.log_pipe import never_block
    from shared.logs import configure_logging, register_secret
    from shared.progress import stderr_progress
    from shared.sizes import readable

    no_core_dumps()
    token = os.environ.get("HF_TOKEN")
    register_secret(token or "")
    _end_by_signals()
    with never_block(2):
        configure_logging()
        manifest = build_engine(config, output, hf_token=token, progress=stderr_progress())
    if as_json:
        say_json({"output": str(output), "manifest": manifest.model_dump(mode="json")})
        return
    typer.echo(f"{output}: {manifest.engine} engine of {manifest.model}, {readable(manifest.total_size)}")


@app.command()
def check(
    config: Annotated[
        str,
        typer.Argument(
            help="The build config: a path, or an http(s) or data: URL; or anything that `serve` takes."
        ),
    ],
    as_json: Annotated[bool, AS_JSON] = False,
    gpus: Annotated[
        int | None, typer.Option(min=0, max=_MAX_COUNT, help="GPUs of the machine that builds.")
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            help="For vLLM: the GPU that the model must fit on, such as H100; overrides the key `gpu`."
        ),
    ] = None,
) -> None:
    """Report what is wrong with a config before anything is fetched: `cog-triton check config.yaml`.

    Of the model's weights, only the headers are read. Exit status 1 when there are errors: with them, nothing
    can be built or, for vLLM, served. A file that only has the section `instantiate` is for an image, and
    builds nothing.
    """
    from cli.check import check as check_config

    raise typer.Exit(
        check_config(config, as_json=as_json, gpus=gpus, gpu=gpu, token=os.environ.get("HF_TOKEN"))
    )


@app.command()
def serve(
    engine: Annotated[str, _ENGINE],
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port of the HTTP API.")] = 5000,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    concurrency: Annotated[
        int | None,
        typer.Option(
            min=1, max=_MAX_COUNT, help="Predictions that may run or wait at the same time (MAX_PREDICTIONS)."
        ),
    ] = None,
) -> None:
    """Serve an engine: `cog-triton serve engine.tar`.

    Then: curl -N localhost:5000/predictions -H 'Accept: text/event-stream'
    -H 'Content-Type: application/json' -d '{"input": {"prompt": "Hello"}}'
    """
    from shared.cog.server import server_command, server_environment
    from shared.layout import PROJECT_ROOT

    _end_by_signals()
    environment = {**from_here(), **server_environment(port, concurrency), "COG_WEIGHTS": absolute(engine)}
    command = [*server_command("runner", host), "--end-on-failure"]
    os.chdir(PROJECT_ROOT)
    with ends_held():
        os.execve(command[0], command, environment)  # noqa: S606 - no shell is what we want


@app.command()
def join(
    address: Annotated[str, typer.Argument(help="HOSTS_ADDRESS of the first host, such as 10.0.0.1:5700.")],
    engine: Annotated[
        str | None, typer.Argument(help="What the first host serves; default: COG_WEIGHTS.")
    ] = None,
) -> None:
    """Serve part of an engine that spans several hosts: `cog-triton join 10.0.0.1:5700 engine.tar`.

    The first host runs `cog-triton serve` with HOSTS_ADDRESS, and all hosts have the same HOSTS_SECRET.
    """
    from runner.triton.address import Address
    from shared.layout import PROJECT_ROOT

    try:
        Address.parse(address)
    except ValueError as wrong:
        raise typer.BadParameter(f"it {wrong}", param_hint="ADDRESS") from None
    weights = {} if engine is None else {"COG_WEIGHTS": absolute(engine)}
    command = [sys.executable, "-m", "cli.joining", address]
    safe = {"PYTHONPATH": str(PROJECT_ROOT), "PYTHONSAFEPATH": "1"}
    environment = {**from_here(), **safe, **weights}
    os.chdir(PROJECT_ROOT)
    with ends_held():
        os.execve(command[0], command, environment)  # noqa: S606 - no shell is what we want


@app.command()
def generate(
    engine: Annotated[str, _ENGINE],
    prompt: Annotated[str | None, typer.Option(help="The prompt; default: all of stdin.")] = None,
    messages: Annotated[
        str | None,
        typer.Option(
            help="A chat instead of a prompt: a JSON list of objects with role and content; -: stdin."
        ),
    ] = None,
    system_prompt: Annotated[
        str | None,
        typer.Option(help="For the template's {system_prompt}; with --messages, that of the conversation."),
    ] = None,
    prompt_template: Annotated[str | None, typer.Option(help="Text with {prompt}.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="The most tokens in the answer.")] = None,
    temperature: Annotated[
        float | None, typer.Option(min=0, max=5, help="0: always the likeliest token.")
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Choose among the likeliest tokens with this total probability."),
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(min=-1, help="Choose among this many of the likeliest tokens; 0 or -1: all.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the random choice.")] = None,
    stop_sequences: Annotated[
        str | None, typer.Option(help="Texts before which the answer ends, separated by commas or as JSON.")
    ] = None,
    as_json: Annotated[bool, AS_JSON] = False,
) -> None:
    """Print an engine's answer as it arrives: `cog-triton generate engine.tar --prompt Hello`.

    The inputs and their defaults are those of a prediction. The engine is stopped after the answer.
    """
    from cli.generate import generate as print_answer

    _end_by_signals()
    inputs = {
        "prompt": prompt,
        "messages": messages,
        "system_prompt": system_prompt,
        "prompt_template": prompt_template,
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "seed": seed,
        "stop_sequences": stop_sequences,
    }
    print_answer(absolute(engine), inputs, as_json=as_json)


@app.command()
def add_compiled(
    engine: Annotated[str, typer.Argument(help="URL or path of an engine.tar of vLLM.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The archive to write.")],
    cache: Annotated[
        Path | None, typer.Option(help="The folder that vLLM compiled into; default: COMPILE_CACHE.")
    ] = None,
) -> None:
    """Write an engine.tar that includes what vLLM compiled for it on a machine that served it.

    A runner with the same image, driver and GPUs loads that instead of compiling, if ALLOW_MODEL_CODE=1.
    """
    from cli.add_compiled import add_compiled as write_archive

    _end_by_signals()
    for told in write_archive(engine, output, cache):
        typer.echo(f"{output}: includes what was compiled on {told}")


@app.command()
def acceptance(
    model: Annotated[
        str | None,
        typer.Argument(
            help="A small Llama: a folder, a model on the hub, or a config of vLLM; default: the demo's."
        ),
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="tensorrt_llm or vllm; default: the one that is installed.")
    ] = None,
    work_dir: Annotated[
        Path | None, typer.Option(help="Where engines and logs are kept; default: a temporary folder.")
    ] = None,
    archive: Annotated[
        str | None, typer.Option(help="TensorRT-LLM: an engine.tar of MODEL to use instead of building one.")
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            help="What another image printed with --json, or wrote with --report to a name that ends in"
            " .json; the texts must be the same."
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            help="Keep a report in this file, ready to paste into an issue; JSON if its name ends in .json."
        ),
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Run this check only; may be repeated.")] = None,
    as_json: Annotated[bool, AS_JSON] = False,
) -> None:
    """Test cog-triton's assumptions about TensorRT-LLM or vLLM against the real one, on a machine with a GPU.

    It makes small engines, serves them and sends them prompts; exit status 1 when an assumption is wrong.
    """
    from cli.acceptance.command import run

    _end_by_signals()
    raise typer.Exit(run(model, work_dir, engine, archive, against, report, only or [], as_json=as_json))


app.command()(perf)


@app.command()
def instantiate(
    config: Annotated[
        str | None,
        typer.Argument(help="A build config, or a file with only its section `instantiate`."),
    ] = None,
    base: Annotated[str | None, typer.Option(help="The runner image; default: `base_model`.")] = None,
    dest: Annotated[str | None, typer.Option(help="Where to push; default: `staging_dest`.")] = None,
    environment: Annotated[
        list[str] | None,
        typer.Option(
            "--env", "-e", metavar="NAME=VALUE", help="An environment variable of the image; may be repeated."
        ),
    ] = None,
) -> None:
    """Push a model's image: `cog-triton instantiate config.yaml --base HOST/RUNNER --dest HOST/MODEL`.

    The image has the runner's layers; the config's weights, prompts and server arguments are in its
    environment. Without a config: `... --base HOST/RUNNER --dest HOST/MODEL -e COG_WEIGHTS=https://...`.
    """
    from cli.instantiate import instantiate as push_image
    from cli.instantiate import variable

    _end_by_signals()
    typer.echo(push_image(config, base, dest, dict(map(variable, environment or []))))


@app.command()
def inspect(
    engine: Annotated[
        str, typer.Argument(help="URL or path of an engine.tar, or a directory that holds an unpacked one.")
    ],
    as_json: Annotated[bool, AS_JSON] = False,
) -> None:
    """Show what an engine is, from its manifest: `cog-triton inspect engine.tar`.

    From a URL, only the beginning of the file is fetched.
    """
    from cli.inspect import described, manifest_of
    from shared.secrets import public_address

    manifest = manifest_of(engine)
    if as_json:
        say_json(
            {"source": public_address(engine), "manifest": manifest and manifest.model_dump(mode="json")}
        )
    else:
        typer.echo(described(manifest))


def _end_by_signals() -> None:
    """By SIGTERM, and when the terminal is closed."""
    for number in heeded((signal.SIGTERM, signal.SIGHUP)):
        signal.signal(number, _end)


def _end(number: int, _frame: object) -> None:
    """Unwind: on the way, what a command started is ended and what it wrote is removed."""
    sys.exit(128 + number)


@app.command()
def model_repository(
    engine: Annotated[str, typer.Option(help=_SERVED)],
    out: Annotated[
        Path, typer.Option(help="The new or empty directory to write, for tritonserver's --model-repository.")
    ],
) -> None:
    """Write a model repository for a Triton of your own: `... --engine engine.tar --out DIR`.

    It prints the command that starts Triton on it, ready for a shell.
    """
    from cli.model_repository import model_repository as write

    _end_by_signals()
    typer.echo(write(engine, out))


app.command()(plan)


def main() -> None:
    """Run the command line; a coded error is one line on stderr and exit status 1."""
    prepare_streams()
    if "HOME" not in os.environ:  # for a user without a name, libraries would make a folder named ~ here
        from shared.home import home

        os.environ["HOME"] = str(home())
    for argument in sys.argv:
        try:
            argument.encode()
        except UnicodeEncodeError:
            say(f"The argument {argument!a} is not UTF-8.", "red", err=True)
            sys.exit(2)
    try:
        app()
    except CogTritonError as error:
        say_error(error)
        sys.exit(1)
    except KeyboardInterrupt:  # before there is a command that could answer it
        sys.exit(128 + signal.SIGINT)
    except Exception:
        from shared.logs import configure_logging, get_logger

        configure_logging("error")
        get_logger().exception("the command failed")
        say_error(GenericError())
        sys.exit(1)
