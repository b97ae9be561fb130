"""Starts the baseline: Triton with the ensemble, and Cog's server with the predictor in front of it."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2

from runner.triton.address import LOOPBACK
from runner.triton.model_repository import BridgeParameters, configuration
from runner.triton.server import HTTP_THREADS, TritonSockets, tritonserver_command
from runner.weights import fetch_weights
from shared.cog.server import free_port
from shared.layout import PROJECT_ROOT, Layout
from tests.performance.baseline.predictor import Predictor
from tests.performance.environment import site_packages
from tests.performance.load import cog, engine_archive, serving, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.performance.load import Served

_HERE = Path(__file__).parent
INSTANCES = 8
"""Of each model in Python; the original's examples had 64, of which each takes a second to start."""

_PYTHON_MODEL = """
name: "{name}" backend: "python" max_batch_size: 1
input [{inputs}] output [{outputs}]
instance_group [{{count: {instances} kind: KIND_CPU}}]
parameters {{key: "tokenizer" value: {{string_value: "{tokenizer}"}}}}
"""
_ENSEMBLE = """
name: "ensemble" platform: "ensemble" max_batch_size: 1
input [{name: "text_input" data_type: TYPE_STRING dims: [1]},
       {name: "max_tokens" data_type: TYPE_INT32 dims: [1]},
       {name: "stream" data_type: TYPE_BOOL dims: [1]}]
output [{name: "text_output" data_type: TYPE_STRING dims: [1]},
        {name: "output_ids" data_type: TYPE_INT32 dims: [-1]}]
ensemble_scheduling {
  step [
    {model_name: "preprocessing" model_version: -1
     input_map {key: "QUERY" value: "text_input"}
     input_map {key: "REQUEST_OUTPUT_LEN" value: "max_tokens"}
     output_map {key: "INPUT_ID" value: "_input_ids"}
     output_map {key: "REQUEST_INPUT_LEN" value: "_input_lengths"}
     output_map {key: "REQUEST_OUTPUT_LEN" value: "_request_output_len"}},
    {model_name: "tensorrt_llm" model_version: -1
     input_map {key: "input_ids" value: "_input_ids"}
     input_map {key: "input_lengths" value: "_input_lengths"}
     input_map {key: "request_output_len" value: "_request_output_len"}
     input_map {key: "streaming" value: "stream"}
     output_map {key: "output_ids" value: "_tokens"}},
    {model_name: "postprocessing" model_version: -1
     input_map {key: "TOKENS_BATCH" value: "_tokens"}
     output_map {key: "OUTPUT" value: "text_output"}
     output_map {key: "OUTPUT_IDS" value: "output_ids"}}
  ]
}
"""


def _tensors(**tensors: str) -> str:
    """Those of a configuration: the name, and the type with the dims."""
    parts = (f'{{name: "{name}" data_type: TYPE_{kind}}}' for name, kind in tensors.items())
    return ", ".join(parts)


def _write_models(models: Path, engine: Path, layout: Layout) -> None:
    number, numbers, text = "INT32 dims: [1]", "INT32 dims: [-1]", "STRING dims: [1]"
    python_models = {
        "preprocessing": (
            _tensors(QUERY=text, REQUEST_OUTPUT_LEN=number),
            _tensors(INPUT_ID=numbers, REQUEST_INPUT_LEN=number, REQUEST_OUTPUT_LEN=number),
        ),
        "postprocessing": (
            _tensors(TOKENS_BATCH="INT32 dims: [-1, -1]"),
            _tensors(OUTPUT=text, OUTPUT_IDS=numbers),
        ),
    }
    configurations = {"ensemble": _ENSEMBLE}
    for name, (inputs, outputs) in python_models.items():
        configurations[name] = _PYTHON_MODEL.format(
            name=name,
            inputs=inputs,
            outputs=outputs,
            instances=INSTANCES,
            tokenizer=engine / "tokenizer/tokenizer.json",
        )
    bridge = BridgeParameters(
        engine_python=layout.engine_python("mock"),
        engine_kind="mock",
        engine_dir=engine,
        engine_path=PROJECT_ROOT,
    )
    configurations["tensorrt_llm"] = str(configuration("tensorrt_llm", bridge))
    for name, text_of_it in configurations.items():
        (models / name / "1").mkdir(parents=True)
        (models / name / "config.pbtxt").write_text(text_of_it)
    for name in python_models:
        shutil.copy(_HERE / f"{name}.py", models / name / "1/model.py")


def _write_backends(backends: Path, layout: Layout) -> None:
    """Our bridge, and the Python backend with the stub of this Python: Triton's wheel has one for each."""
    server = layout.tritonserver.parent.parent
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    shutil.copytree(server / "backends/python", backends / "python")
    stub = server / "python_backend_stubs" / version / "triton_python_backend_stub"
    shutil.copy(stub, backends / "python")
    # The stub looks in this folder for modules, and not where PYTHONPATH says.
    for name in ("numpy", "numpy.libs", "tokenizers"):
        (backends / "python" / name).symlink_to(site_packages() / name)
    (backends / "engine_bridge").symlink_to(layout.backend_directory / "engine_bridge")


@contextmanager
def original(directory: Path, slots: int, **config: float) -> Iterator[Served]:
    """The baseline with a mock engine of this configuration, ready for that many simultaneous predictions."""
    layout, place = Layout.current(), directory / "original"
    archive = engine_archive(directory, **config)
    engine = fetch_weights(
        str(archive), directory / "weights", check=lambda _: None, max_bytes=archive.stat().st_size
    ).path
    _write_models(place / "models", engine, layout)
    _write_backends(place / "backends", layout)
    port = free_port()
    command = tritonserver_command(
        layout,
        place / "models",
        TritonSockets(place),
        http=False,
        grpc=False,
    )
    command.remove("--allow-http=false")
    command += [f"--http-address={LOOPBACK}", f"--http-port={port}", f"--http-thread-count={HTTP_THREADS}"]
    command[command.index(f"--backend-directory={layout.backend_directory}")] = (
        f"--backend-directory={place / 'backends'}"
    )
    # The stub is linked with libpython.
    libraries = [str(layout.triton_libraries), str(sysconfig.get_config_var("LIBDIR"))]
    environment = {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(libraries)}
    settings = {
        "BASELINE_TOKENIZER": str(engine / "tokenizer/tokenizer.json"),
        "BASELINE_TRITON": f"http://{LOOPBACK}:{port}",
    }
    with serving(command, environment, directory) as triton:
        wait_until(lambda: _is_ready(port), triton, seconds=120)
        with cog(directory, _HERE / "predictor.py", Predictor, slots, **settings) as server:
            yield replace(server, beside=triton.pid)


def _is_ready(port: int) -> bool:
    try:
        return httpx2.get(f"http://{LOOPBACK}:{port}/v2/health/ready").is_success
    except httpx2.TransportError:
        return False
