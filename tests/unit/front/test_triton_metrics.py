"""Triton's own metrics, which /metrics passes on."""

import pytest

from runner.metrics import Metrics
from runner.prediction.admission import Admission
from tests.support.loopback import LoopbackServer, QuietHandler


class _Triton(QuietHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"# TYPE nv_cpu_utilization gauge\nnv_cpu_utilization 0.5\n")


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_no_proxy_is_asked_for_them(monkeypatch, variable):
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    with LoopbackServer(_Triton) as triton:
        metrics = Metrics(Admission(1), lambda: None)
        metrics.add_triton(triton.url.removeprefix("http://"))
        assert b"nv_cpu_utilization 0.5\n" in metrics.exposition()
