"""The first token over Triton's own gRPC, without a front: what Triton, the bridge and the engine process take."""

from __future__ import annotations

import queue
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import tritonclient.grpc as triton

from tests.performance.cancel_rows import argument
from tests.performance.load import runner
from tests.performance.row import Row

SAMPLES = 200


def _inputs() -> list[triton.InferInput]:
    values = {
        "input_ids": np.array([[5]], np.int32),
        "input_lengths": np.array([[1]], np.int32),
        "request_output_len": np.array([[1]], np.int32),
        "streaming": np.array([[True]], np.bool_),
    }
    inputs = []
    for name, value in values.items():
        datatype = "BOOL" if value.dtype == np.bool_ else "INT32"
        one = triton.InferInput(name, list(value.shape), datatype)
        one.set_data_from_numpy(value)
        inputs.append(one)
    return inputs


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as temporary, runner(Path(temporary)) as server:
        answers: queue.Queue[tuple[object, object]] = queue.Queue()
        with triton.InferenceServerClient(f"127.0.0.1:{argument(server, '--grpc-port')}") as client:
            client.start_stream(lambda result, error: answers.put((result, error)))
            inputs, seconds = _inputs(), []
            for _ in range(SAMPLES):
                started = time.perf_counter()
                client.async_stream_infer("tensorrt_llm", inputs)
                result, error = answers.get(timeout=10)
                seconds.append(time.perf_counter() - started)
                if error is not None or result is None:
                    raise AssertionError(f"no token: {error}")
            client.stop_stream()
    name = "one stream over Triton's gRPC: time to first token, median"
    return [Row(name, 1000 * statistics.median(seconds), "ms", at_most=2)]
