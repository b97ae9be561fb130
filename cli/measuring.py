"""`cog-triton perf` and `cog-triton plan`: their options."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated, Literal

import typer

from cli.output import AS_JSON

_MAX_NUMBER = 1e9  # of numbers with a fraction: far beyond what can be meant, and not infinite
_MAX_REQUESTS = 1e6  # in a second: far beyond what a client can send
_MAX_TOKENS = 10_000_000  # of a prompt, and of an answer: far beyond what a model can take
_MAX_GPUS = 1_000_000


def perf(
    url: Annotated[
        str,
        typer.Argument(
            help="The server's address: http(s)://HOST:PORT/PATH, or grpc://HOST:PORT for Triton."
        ),
    ],
    target: Annotated[
        Literal["cog-triton", "openai", "triton", "mock", "replicate"] | None,
        typer.Option(help="The kind of server; default: detected from the address and what answers there."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="The model, for OpenAI's API, Triton (default: ensemble) and Replicate (a version)."
        ),
    ] = None,
    concurrency: Annotated[
        str | None,
        typer.Option(help="Requests at the same time; for a list such as 1,8,64, one load after another."),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            max=_MAX_REQUESTS,
            help="Requests per second; with --unit batch, requests per batch.",
        ),
    ] = None,
    unit: Annotated[
        Literal["rps", "batch"],
        typer.Option(
            help="rps: send at this rate, however fast the server answers; batch: send the next"
            " batch a second after the last has ended."
        ),
    ] = "rps",
    arrivals: Annotated[
        Literal["poisson", "constant"], typer.Option(help="Arrivals of --unit rps: random, or evenly spaced.")
    ] = "poisson",
    duration: Annotated[float, typer.Option(min=0.1, max=_MAX_NUMBER, help="Seconds of each load.")] = 10,
    requests: Annotated[
        int | None, typer.Option(min=1, help="The most requests to send in each load.")
    ] = None,
    input_tokens: Annotated[
        int,
        typer.Option(
            "--n_input_tokens",
            min=1,
            max=_MAX_TOKENS,
            help="Approximate length of the prompt: the number of its words.",
        ),
    ] = 100,
    output_tokens: Annotated[
        int,
        typer.Option(
            "--n_output_tokens",
            min=1,
            max=_MAX_TOKENS,
            help="Length of each answer; exact if the server can do that.",
        ),
    ] = 100,
    tps: Annotated[
        float | None,
        typer.Option(
            min=1,
            max=_MAX_NUMBER,
            help="Tokens per second expected of each stream; with --target mock, the speed at which"
            " it generates.",
        ),
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="A file with a prompt, or a JSON object, on each line.")
    ] = None,
    output_method: Annotated[
        Literal["yield", "wait"],
        typer.Option(
            "--output_method",
            help="yield: events as they come; wait: one answer at the end (of Replicate's API, only yield).",
        ),
    ] = "yield",
    slo: Annotated[
        str | None,
        typer.Option(
            help="Objectives (of ttft, itl and latency) that a request must meet to count as goodput:"
            " ttft=500ms,itl=50ms."
        ),
    ] = None,
    stall: Annotated[
        float,
        typer.Option(
            min=0.1, max=_MAX_NUMBER, help="Seconds without a token after which a request is abandoned."
        ),
    ] = 60,
    metrics: Annotated[
        str | None, typer.Option(help="Where the server reports its metrics; default: its /metrics.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a report for a browser; it needs no network.")
    ] = None,
    as_json: Annotated[bool, AS_JSON] = False,
) -> None:
    """Put load on a server and report what is slow: `cog-triton perf http://localhost:5000`.

    Latencies count from when a request was due.
    An API key is read from OPENAI_API_KEY or REPLICATE_API_TOKEN.
    """
    from cli.perf.command import perf as measure
    from cli.perf.options import plan_of

    plan = plan_of(
        url,
        target=target,
        model=model,
        concurrency=concurrency,
        rate=rate,
        unit=unit,
        arrivals=arrivals,
        duration=duration,
        requests=requests,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        tokens_per_second=tps,
        prompts=prompts,
        output_method=output_method,
        objectives=slo,
        stall_seconds=stall,
        metrics_url=metrics,
        report=report,
    )
    raise typer.Exit(measure(plan, as_json=as_json))


def plan(
    measurement: Annotated[
        str,
        typer.Argument(
            help="What `cog-triton perf --concurrency ... --json` wrote about one runner; - is stdin."
        ),
    ],
    rate: Annotated[
        list[float], typer.Option(min=0.001, max=_MAX_NUMBER, help="Requests per second; may be repeated.")
    ],
    slo: Annotated[
        str,
        typer.Option(
            help="Objectives (of ttft, itl and latency) that a request must meet: ttft=500ms,itl=50ms."
        ),
    ],
    share: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the requests that must meet the objectives.")
    ] = 0.99,
    balance: Annotated[
        Literal["least_conn", "round_robin", "random"],
        typer.Option(help="How the load balancer chooses a runner."),
    ] = "least_conn",
    gpus: Annotated[int, typer.Option(min=1, max=_MAX_GPUS, help="GPUs of one runner.")] = 1,
    reserve: Annotated[
        float,
        typer.Option(
            min=0, max=_MAX_NUMBER, help="Runners kept in reserve, as a share of those that the load needs."
        ),
    ] = 0.25,
    pull: Annotated[
        float,
        typer.Option(
            min=0, max=_MAX_NUMBER, help="Seconds that a start spends pulling the image onto a node."
        ),
    ] = 0,
    weights: Annotated[
        float,
        typer.Option(
            min=0,
            max=_MAX_NUMBER,
            help="Seconds that a start spends fetching the engine into an empty cache.",
        ),
    ] = 0,
    load: Annotated[
        float,
        typer.Option(
            min=0,
            max=_MAX_NUMBER,
            help="Seconds that a start spends loading the engine from the cache until it is ready.",
        ),
    ] = 0,
    as_json: Annotated[bool, AS_JSON] = False,
) -> None:
    """Compute how many runners a load needs: `cog-triton plan one.json --rate 1000 --slo
    ttft=500ms,itl=50ms`.

    Given the seconds that a start takes, it also computes how fast the load may grow. Exit status 1 when
    nothing meets the objectives.
    """
    from cli.perf.plan import Objectives
    from cli.plan.command import Asked
    from cli.plan.command import plan as tell
    from cli.plan.growth import Pace, Start
    from cli.plan.sizing import Wanted

    try:
        objectives = Objectives.of(slo)
    except ValueError as problem:
        raise typer.BadParameter(str(problem), param_hint="--slo") from None
    asked = Asked(
        measurement,
        rate,
        Wanted(objectives, share, balance),
        Start(pull, weights, load),
        Pace(reserve=reserve),
        gpus,
    )
    raise typer.Exit(tell(asked, as_json=as_json))
