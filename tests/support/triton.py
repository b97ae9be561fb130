"""A real tritonserver with the engine bridge, and requests to it over gRPC."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from array import array
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from runner.lifecycle.gate import Gate
from runner.protocol.tokens import request_tensors
from runner.triton.address import LOOPBACK
from runner.triton.model_repository import (
    MODEL_NAME,
    BridgeParameters,
    write_model_repository,
)
from runner.triton.server import HTTP_THREADS, TritonSockets, socket_arguments
from shared.cog.server import free_port
from shared.layout import PROJECT_ROOT, Layout
from tests.support.engine_watch import EngineWatch
from tests.support.processes import MARK, pid_of, wait_gone

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from runner.protocol.engine import Request
    from runner.protocol.feed import EngineState
    from runner.protocol.tensors import RawTensor

OUTPUTS = ("output_ids", "sequence_length", "finish_reason")


@dataclass
class Answer:
    """What came back for one request."""

    pieces: list[list[int]] = field(default_factory=list)
    finish_reasons: list[int] = field(default_factory=list)
    finals: int = 0
    error: str = ""

    @property
    def tokens(self) -> list[int]:
        return [token for piece in self.pieces for token in piece]

    def add(self, message: service_pb2.ModelStreamInferResponse) -> None:
        self.error += message.error_message
        self.finals += message.infer_response.parameters["triton_final_response"].bool_param
        if message.error_message or not message.infer_response.outputs:
            return
        names = [output.name for output in message.infer_response.outputs]
        numbers = [array("i", raw).tolist() for raw in message.infer_response.raw_output_contents]
        outputs = dict(zip(names, numbers, strict=True))
        assert outputs["sequence_length"] == [len(outputs["output_ids"])]
        self.pieces.append(outputs["output_ids"])
        self.finish_reasons += outputs["finish_reason"]


def message(request: Request, *extra: RawTensor) -> service_pb2.ModelInferRequest:
    made = service_pb2.ModelInferRequest(model_name=MODEL_NAME, id=f"id-{request.request_id}")
    tensors = {tensor.name: tensor for tensor in (*request_tensors(request), *extra)}
    for tensor in tensors.values():
        made.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        made.raw_input_contents.append(tensor.data)
    for name in OUTPUTS:
        made.outputs.add(name=name)
    made.parameters["triton_enable_empty_final_response"].bool_param = True
    return made


class Triton:
    """One tritonserver. `mark` is in the environment of all its processes."""

    def __init__(self, directory: Path, engine_dir: Path, **parameters: object) -> None:
        """`http_port`: that of Triton's HTTP endpoints, which are closed without.

        `unloads`: models can be unloaded. `gated`: Triton itself listens on Unix sockets, as in a runner,
        and what listens on its ports there does so here.
        """
        self.mark = uuid.uuid4().hex
        self.log = directory / "log"
        self.feed_path = directory / "feed"
        self.engine = EngineWatch(self.feed_path)
        layout = Layout.current()
        self.http_port = parameters.pop("http_port", None)
        unloads = parameters.pop("unloads", False)
        gated = parameters.pop("gated", False)
        decoupled = parameters.pop("decoupled", True)
        backend_model = parameters.pop("backend_model", None)
        settings = {
            "engine_python": layout.engine_python("mock"),
            "engine_kind": "mock",
            "engine_dir": engine_dir,
            "engine_path": PROJECT_ROOT,
            "feed_path": self.feed_path,
        }
        write_model_repository(
            directory / "models",
            BridgeParameters(**{**settings, **parameters}),
            decoupled=decoupled,
            backend_model=backend_model,
        )
        port = self.grpc_port = free_port()
        command = [str(layout.tritonserver), f"--model-repository={directory / 'models'}"]
        command += [f"--backend-directory={layout.backend_directory}", "--exit-timeout-secs=5"]
        command += ["--allow-gpu-metrics=false"]
        if gated:
            command += socket_arguments(TritonSockets(directory), http=True, grpc=True)
        else:
            command += ["--allow-metrics=false", *tcp_arguments(port, self.http_port)]
        if unloads:
            command += ["--model-control-mode=explicit", "--load-model=*"]
        self._command = command
        self._environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(layout.triton_libraries),
            MARK: self.mark,
        }
        self.process = self.start()
        self.gate = self._start_gate(directory) if gated else None
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self.stub = service_pb2_grpc.GRPCInferenceServiceStub(self.channel)

    def start(self) -> subprocess.Popen[bytes]:
        """Start it, also again."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment
            )
        return self.process

    def _start_gate(self, directory: Path) -> subprocess.Popen[bytes]:
        addresses = {"TRITON_GRPC_ADDRESS": f"127.0.0.1:{self.grpc_port}"}
        addresses["TRITON_HTTP_ADDRESS"] = f"127.0.0.1:{self.http_port}"
        gate = Gate([sys.executable, "-m", "runner.front.triton", "--directory", str(directory)]).command()
        with self.log.open("ab") as log:
            return subprocess.Popen(
                gate.arguments,
                stdout=log,
                stderr=log,
                env={**gate.environment, **addresses, MARK: self.mark},
                pass_fds=gate.pass_fds,
            )

    def wait_ready(self, seconds: float = 60) -> None:
        self.wait_for(self._is_ready, seconds)
        if self.http_port:  # which is opened after gRPC's
            self.wait_for(lambda: is_open(self.http_port))

    def wait_for(self, condition, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.01)

    def wait_engine(self, state: EngineState) -> None:
        self.wait_for(lambda: self.engine.status.state is state)

    def _is_ready(self) -> bool:
        try:
            return self.stub.ModelReady(service_pb2.ModelReadyRequest(name=MODEL_NAME)).ready
        except grpc.RpcError:
            return False

    def engine_pid(self) -> int:
        return pid_of(self.mark, "runner.engines.process")

    def open(self, request: Request, *extra: RawTensor) -> Any:
        """The gRPC call of a request."""
        return self.stub.ModelStreamInfer(iter([message(request, *extra)]), timeout=120)

    def run(self, request: Request, *extra: RawTensor) -> Answer:
        answer = Answer()
        for response in self.open(request, *extra):
            answer.add(response)
        return answer

    def run_all(self, requests: Iterable[Request]) -> list[Answer]:
        """Run these at the same time, one gRPC call each."""
        requests = list(requests)
        with ThreadPoolExecutor(len(requests)) as threads:
            return list(threads.map(self.run, requests))

    def end(self) -> dict[int, str]:
        """End the server; what is left of its processes."""
        self.channel.close()
        self.engine.close()
        if self.gate is not None:
            self.gate.terminate()
            self.gate.wait(20)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        return wait_gone(self.mark)


def tcp_arguments(grpc_port: int, http_port: int | None) -> list[str]:
    """Where a Triton listens that is no runner's."""
    arguments = [f"--grpc-address={LOOPBACK}", f"--grpc-port={grpc_port}"]
    if not http_port:
        return [*arguments, "--allow-http=false"]
    http = [f"--http-address={LOOPBACK}", f"--http-port={http_port}", f"--http-thread-count={HTTP_THREADS}"]
    return arguments + http


def is_open(port: int) -> bool:
    """Whether somebody listens on this port of loopback."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def triton(directory: Path, engine_dir: Path, **parameters: object) -> Iterator[Triton]:
    """A server that is ready; after it no process of it may be left."""
    server = Triton(directory, engine_dir, **parameters)
    try:
        server.wait_ready()
        yield server
    finally:
        left = server.end()
    assert left == {}
