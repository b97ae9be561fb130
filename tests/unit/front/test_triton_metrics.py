"""Triton's own metrics, which /metrics passes on."""

import socket
import socketserver
import threading
from http.server import ThreadingHTTPServer

import pytest

from runner.metrics import Metrics
from runner.prediction.admission import Admission
from tests.support.loopback import QuietHandler

TEXT = b"""\
# HELP nv_inference_request_success Number of successful inference requests, all batch sizes
# TYPE nv_inference_request_success counter
nv_inference_request_success{model="ensemble",version="1"} 3
# HELP nv_cpu_utilization CPU utilization rate
# TYPE nv_cpu_utilization gauge
nv_cpu_utilization 0.5
"""


class _Triton(QuietHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(TEXT)


class _UnixServer(ThreadingHTTPServer):
    address_family = socket.AF_UNIX

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)


@pytest.fixture
def metrics():
    return Metrics(Admission(1), lambda: None)


def test_they_have_the_names_that_triton_gives_them(tmp_path, metrics):
    path = str(tmp_path / "metrics")
    with _UnixServer(path, _Triton) as triton:
        threading.Thread(target=triton.handle_request).start()
        metrics.add_triton(path)
        assert metrics.exposition().endswith(b"\n" + TEXT)


def test_they_are_missing_while_there_is_no_triton(tmp_path, metrics):
    metrics.add_triton(str(tmp_path / "metrics"))
    assert b"nv_" not in metrics.exposition()
