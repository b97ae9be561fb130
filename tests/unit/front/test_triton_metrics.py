"""Triton's own metrics, which /metrics passes on."""

import pytest

from runner.metrics import Metrics
from runner.prediction.admission import Admission
from tests.support.loopback import LoopbackServer, QuietHandler

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


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_no_proxy_is_asked_for_them(monkeypatch, variable):
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    with LoopbackServer(_Triton) as triton:
        metrics = Metrics(Admission(1), lambda: None)
        metrics.add_triton(triton.url.removeprefix("http://"))
        assert metrics.exposition().endswith(b"\n" + TEXT)  # with the names that Triton gives them
