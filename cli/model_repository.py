"""`cog-triton model-repository`: an engine for a Triton that you start by hand."""

from __future__ import annotations

import os
import shlex
import shutil
from typing import TYPE_CHECKING

from cli.engines import engine_of
from runner.lifecycle.preparation import backend_model, engine_kind
from runner.settings import Settings
from runner.triton.model_repository import BridgeParameters, write_model_repository
from runner.weights import fetch_weights
from shared.errors import OutputRefused
from shared.layout import PROJECT_ROOT, Layout
from shared.logs import configure_logging
from shared.server_arguments import is_decoupled

if TYPE_CHECKING:
    from pathlib import Path

    from shared.artifact import EngineFacts


def model_repository(engine: str, out: Path) -> str:
    """Write the model repository `out` for `engine`, as COG_WEIGHTS names it.

    `out` is new or empty: a model in it could have the name of one of ours. An archive is unpacked where a
    runner would look for it (WEIGHTS_CACHE). Returns the command that serves it, quoted for a shell, from any
    directory. Raises OutputRefused, PartNotInstalled, ServerParameterInvalid
    and what `engine_of` and `fetch_weights` raise.
    """
    configure_logging()
    new = _check(out)
    settings = Settings.from_environment(os.environ)
    layout = Layout.current()

    def check(facts: EngineFacts | None) -> None:
        """Whether it fits this machine is checked when it is served."""
        layout.engine_python(engine_kind(facts))

    source = engine_of(engine, settings, check)
    directory = fetch_weights(
        source, settings.weights_cache, check=check, max_bytes=settings.max_engine_bytes
    )
    kind = engine_kind(directory.manifest)
    parameters = BridgeParameters(
        engine_python=layout.engine_python(kind),
        engine_kind=kind,
        engine_dir=directory.path.resolve(),
        engine_path=PROJECT_ROOT,
    )
    command = [
        str(layout.tritonserver),
        # Path raises for a link to itself.
        f"--model-repository={os.path.realpath(out)}",
        f"--backend-directory={layout.backend_directory}",
        "--http-address=127.0.0.1",
        "--grpc-address=127.0.0.1",
        "--allow-metrics=false",
    ]
    decoupled = is_decoupled(settings.server_arguments(directory.config))
    try:
        write_model_repository(out, parameters, decoupled=decoupled, backend_model=backend_model(directory))
    except OSError as error:
        for written in [new] if new else out.iterdir():
            shutil.rmtree(written, ignore_errors=True)
        raise _refused(out, error) from None
    return f"LD_LIBRARY_PATH={shlex.quote(str(layout.triton_libraries))} {shlex.join(command)}"


def _check(out: Path) -> Path | None:
    """What has to be made: `out`, or the first of its parents that is missing. Raises OutputRefused if `out`
    is there, and not an empty directory.
    """
    try:
        is_empty = not any(out.iterdir())
    except FileNotFoundError:
        return [path for path in (out, *out.parents) if not path.exists()][-1]
    except OSError as error:
        raise _refused(out, error) from None
    if not is_empty:
        raise OutputRefused(
            path=out,
            reason="the directory is not empty",
            fix="Choose a new or empty directory, or remove that one",
        )
    return None


def _refused(out: Path, error: OSError) -> OutputRefused:
    return OutputRefused(path=out, reason=error.strerror, fix="Choose another directory")
