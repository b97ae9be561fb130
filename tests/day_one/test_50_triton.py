"""Triton as people talk to it: curl on 8000, tritonclient's `infer()` on 8000 and 8001, Prometheus on 8002."""

from __future__ import annotations

import pytest

from shared.cog.server import free_port

INFER = """\
import sys
import numpy as np
from tritonclient import grpc, http

for api, address in ((grpc, sys.argv[1]), (http, sys.argv[2])):
    client = api.InferenceServerClient(address)
    text = api.InferInput("text_input", [1, 1], "BYTES")
    text.set_data_from_numpy(np.array([["What is machine learning?"]], dtype=object))
    tokens = api.InferInput("max_tokens", [1, 1], "INT32")
    tokens.set_data_from_numpy(np.array([[5]], dtype=np.int32))
    print(client.infer("ensemble", [text, tokens]).as_numpy("text_output")[0, 0].decode())
    client.close()
"""
BODY = """{"text_input": "What is machine learning?", "max_tokens": 5}"""
TENSORS = """{"inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1, 1], "data": ["x"]},
                         {"name": "max_tokens", "datatype": "INT32", "shape": [1, 1], "data": [5]}]}"""


@pytest.fixture(scope="module", autouse=True)
def ports(user):
    user.variables.update({name: str(free_port()) for name in ("HTTP", "GRPC", "METRICS")})


def test_with_nothing_said_tritons_ports_are_closed(user):
    user.write("mock.yaml", "engine: mock\n")
    user.types("cog-triton build mock.yaml -o engine.tar")
    served = user.starts(
        "cog-triton serve engine.tar --port $PORT", "localhost:$PORT/health-check", says="READY"
    )
    refused = 7  # curl's word for it
    user.types("curl -s localhost:8000/v2/health/ready", status=refused)
    assert served.stop() == 0


def test_the_config_of_the_original_asks_for_one_answer(user):
    user.write(
        "server.yaml",
        "instantiate: {server: {tensorrt_llm: {args: {decoupled_mode: 'False', batching_strategy: V1}}}}\n",
    )
    user.starts(
        "TRITON_HTTP_ADDRESS=0.0.0.0:$HTTP TRITON_GRPC_ADDRESS=0.0.0.0:$GRPC TRITON_METRICS_ADDRESS=0.0.0.0:$METRICS"
        " COG_TRITON_CONFIG=$PWD/server.yaml cog-triton serve engine.tar --port $PORT",
        "localhost:$PORT/health-check",
        says="READY",
    )


def test_curl_as_soon_as_it_is_ready(user):
    answer = user.types(f"curl -s localhost:$HTTP/v2/models/ensemble/generate -d '{BODY}'").json
    assert answer["text_output"] == "0 1 2 3 4"


def test_tritonclient_infers_over_grpc_and_http(user):
    user.write("infer.py", INFER)
    assert user.types("python infer.py localhost:$GRPC localhost:$HTTP").text == "0 1 2 3 4\n" * 2


def test_infer_by_hand(user):
    answer = user.types(f"curl -s localhost:$HTTP/v2/models/ensemble/infer -d '{TENSORS}'").json
    assert {"name": "text_output", "datatype": "BYTES", "shape": [1, 1], "data": ["0 1 2 3 4"]} in answer[
        "outputs"
    ]


def test_those_that_stream_stand_beside_them(user):
    body = BODY.replace("}", ', "stream": true}')
    streamed = user.types(
        f"curl -sN localhost:$HTTP/v2/models/ensemble_decoupled/generate_stream -d '{body}'"
    )
    assert "".join(event["text_output"] for event in streamed.events) == "0 1 2 3 4"


def test_predictions_work_as_before(user):
    answer = user.types(
        """curl -s localhost:$PORT/predictions -H 'Content-Type: application/json'
           -d '{"input": {"prompt": "x", "max_tokens": 5}}'"""
    ).json
    assert "".join(answer["output"]) == "0 1 2 3 4"


def test_prometheus_reads_tritons_metrics(user):
    assert (
        'nv_inference_request_success{model="ensemble"'
        in user.types("curl -s localhost:$METRICS/metrics").text
    )


def test_tritons_log_is_nobodys_to_change(user):
    refused = user.types("""curl -s localhost:$HTTP/v2/logging -d '{"log_verbose_level": 1}'""").json
    assert refused["error"].startswith("E1341 TritonPathUnknown: There is nothing at /v2/logging ")
