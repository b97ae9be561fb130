"""Everything that must exist before Triton starts, in a process of its own: heavy imports, threads,
downloads.

    python -m cli.preparation --control-fd FD --directory DIR

It tells its supervisor over FD (control.py) what to start, or why that is impossible, and ends.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from runner.engines.catalogue import ENGINES
from runner.engines.gpus import hide_gpus
from runner.engines.hosts.settings import HostsSettings
from runner.engines.tensorrt_llm.settings import SERVER_ARGUMENTS
from runner.engines.vllm.compile_cache import COMPILE_CACHE
from runner.lifecycle.control import EngineAddress, Prepared, SettingsRead, SetupFailed, encode
from runner.lifecycle.environment import engine_environment
from runner.lifecycle.machine import check_machine, gpus_here
from runner.settings import Settings
from runner.triton.address import reached_at
from runner.triton.model_repository import BridgeParameters, write_model_repository
from runner.triton.server import TritonSockets, tritonserver_command
from runner.weights import fetch_weights
from shared.artifact import WHY_NO_MANIFEST, remove_partials
from shared.cog.server import refuse_used_port
from shared.errors import CogTritonError, EngineKindMismatch, GenericError, SettingInvalid, WeightsNotSet
from shared.home import SCRATCH
from shared.layout import PROJECT_ROOT, Layout
from shared.logs import configure_logging, get_logger
from shared.progress import stderr_progress
from shared.resolving import written
from shared.server_arguments import is_decoupled

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.artifact import EngineDirectory, EngineFacts

    Check = Callable[[EngineFacts | None], None]
    """Raises to refuse an engine; None is one from before manifests."""
    Find = Callable[[str, Settings, Check], str]
    """Gives the engine that COG_WEIGHTS stands for, as `fetch_weights` takes it."""

log = get_logger()


def prepare(settings: Settings, directory: Path, find: Find) -> Prepared:
    """Fetch the engine, check that it runs here, and write Triton's model repository into `directory`.

    Raises the errors of configs (E3xxx) and of a start (E4xxx).
    """
    layout = Layout.current()
    for name, place in settings.triton_addresses.items():
        refuse_used_port(place.port, place.host, name)
    engine = prepare_engine(settings, layout.available_engines(), find, several_hosts=settings.several_hosts)
    kind = engine_kind(engine.manifest)
    _check_ranks(settings, engine)
    arguments = settings.server_arguments(engine.config)
    decoupled = is_decoupled(arguments)
    sockets = TritonSockets(directory)
    write_model_repository(
        directory / "models",
        BridgeParameters(
            engine_python=layout.engine_python(kind),
            engine_kind=kind,
            engine_dir=engine.path,
            engine_path=PROJECT_ROOT,
            start_timeout_seconds=settings.engine_start_timeout,
            feed_path=sockets.feed,
        ),
        decoupled=decoupled,
        backend_model=backend_model(engine),
    )
    opened = settings.triton_addresses
    address = EngineAddress(
        engine=kind,
        engine_dir=str(engine.path),
        metrics_path=str(sockets.metrics),
        feed_path=str(sockets.feed),
        promised=[str(sockets.metrics), *(one.here for one in opened.values())],
    )
    environment = hide_gpus(engine_environment(os.environ, settings.engine_variables))
    environment["LD_LIBRARY_PATH"] = str(layout.triton_libraries)
    environment[COMPILE_CACHE] = str(settings.compile_cache)
    environment[SCRATCH] = str(directory)
    environment[SERVER_ARGUMENTS] = json.dumps(arguments)
    environment |= _hosts(settings, kind)
    command = tritonserver_command(
        layout,
        directory / "models",
        sockets,
        http=settings.triton_http_address is not None,
        grpc=settings.triton_grpc_address is not None,
    )
    gate = [sys.executable, "-m", "runner.front.triton", "--directory", str(directory)] if opened else []
    return Prepared(command, environment, address, gate)


def engine_kind(facts: EngineFacts | None) -> str:
    """The kind of an engine, from its manifest; archives from before manifests hold TensorRT-LLM's."""
    return "tensorrt_llm" if facts is None else facts.engine


def backend_model(engine: EngineDirectory) -> str | None:
    """The name of the model for clients of Triton's vLLM backend; None for engines other than vLLM."""
    if engine_kind(engine.manifest) != "vllm":
        return None
    return str(engine.config.get("triton_model") or "vllm_model")


def prepare_engine(
    settings: Settings, available: list[str], find: Find, *, several_hosts: bool = False
) -> EngineDirectory:
    """The engine in the settings, fetched and unpacked if need be.

    Raises WeightsNotSet when they have none, EngineKindMismatch for a kind that is not in `available`, what
    check_machine raises for a machine that cannot run it, and what `find` and `fetch_weights` raise.
    """

    def check(facts: EngineFacts | None) -> None:
        if (kind := engine_kind(facts)) not in available:
            raise EngineKindMismatch(
                kind=kind,
                why=f" ({WHY_NO_MANIFEST})" if facts is None else "",
                available=", ".join(available),
            )
        check_machine(kind, facts, settings.image_sm, several_hosts=several_hosts)

    source = settings.weights or settings.instantiate({}).get("weights") or settings.engine_dir
    if source is None:
        raise WeightsNotSet
    source = find(str(source), settings, check)
    with stderr_progress().step("engine") as progress:
        engine = fetch_weights(
            source,
            settings.weights_cache,
            check=check,
            max_bytes=settings.max_engine_bytes,
            progress=progress,
        )
    if engine.manifest is None:
        log.warning("this engine has no manifest: whether it fits this image cannot be checked")
    return engine


def _hosts(settings: Settings, kind: str) -> dict[str, str]:
    """What the engine process is told about other hosts. Raises SettingInvalid."""
    address = settings.hosts_address
    if address is None or ENGINES[kind].needs_cuda is None:
        return {}
    if reached_at(address.host) != address.host:
        reason = "the others need one of this host's own addresses"
        raise SettingInvalid(setting="HOSTS_ADDRESS", value=written(*address), reason=reason)
    told = HostsSettings(
        address=address.here,
        gpus=gpus_here(),
        seconds=settings.hosts_timeout,
        mpi_hosts=settings.mpi_hosts,
        secret=settings.secret_of_hosts(),
    )
    return told.environment()


def _check_ranks(settings: Settings, engine: EngineDirectory) -> None:
    """Raise SettingInvalid when WORLD_SIZE is not what the engine needs."""
    ranks = None if engine.manifest is None else engine.manifest.ranks
    if settings.world_size is not None and ranks is not None and settings.world_size != ranks:
        reason = f"the engine needs {ranks}"
        raise SettingInvalid(setting="WORLD_SIZE", value=settings.world_size, reason=reason)


def main(find: Find) -> None:
    """Prepare once, and report how it went."""
    parser = argparse.ArgumentParser(prog="cli.preparation")
    parser.add_argument("--control-fd", type=int, required=True)
    parser.add_argument("--directory", type=Path, required=True)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _end)
    with socket.socket(fileno=options.control_fd) as control:
        try:
            configure_logging()
            settings = Settings.from_environment(os.environ)
            seconds = SettingsRead(
                settings.setup_timeout, settings.engine_start_timeout, settings.drain_seconds
            )
            control.sendall(encode(seconds))
            message: Prepared | SetupFailed = prepare(settings, options.directory, find)
        except CogTritonError as error:
            message = SetupFailed(str(error))
        except Exception:
            log.exception("the preparation failed")
            message = SetupFailed(str(GenericError()))
        control.sendall(encode(message))


def _end(number: int, _frame: object) -> None:
    """End at once, without what has been fetched of an engine.

    An exception from here could come anywhere, even where nothing passes it on.
    """
    signal.signal(number, signal.SIG_IGN)
    remove_partials()
    os._exit(128 + number)
