"""What Prometheus reads at /metrics: the runner's own numbers, the engine's and Triton's."""

from __future__ import annotations

from contextlib import contextmanager

import httpx2
import pytest
import yaml

from builder.pipeline import build
from demo.cog_client import PredictionClient
from shared.errors import PromptRequired
from shared.layout import PROJECT_ROOT
from tests.integration.conftest import cog_server, unpacked
from tests.support.tensorrt_llm_engine import runner_environment
from tests.support.waiting import wait_for

ENGINE = "cog_triton_engine"


@contextmanager
def measured(directory, **settings: str):
    """A runner, and what gives its metrics: numbers by name and labels."""
    with cog_server("runner", directory / "log", **settings) as server:

        def numbers() -> dict[str, float]:
            lines = httpx2.get(f"{server.url}/metrics").text.splitlines()
            pairs = (line.rpartition(" ") for line in lines if line[0] != "#")
            return {name: float(value) for name, _, value in pairs}

        yield PredictionClient(server.url), numbers


def test_they_count_what_happened_and_pass_on_those_of_triton(mock_archive, tmp_path):
    settings = {"COG_WEIGHTS": str(mock_archive()), "WEIGHTS_CACHE": str(tmp_path / "weights")}
    with measured(tmp_path, **settings) as (client, numbers):
        client.predict({"prompt": "x y", "max_tokens": 5})
        with pytest.raises(PromptRequired):
            client.predict({"prompt": ""})
        stream = client.text({"prompt": "x", "max_tokens": 3000})
        next(stream)
        wait_for(lambda: numbers()[f"{ENGINE}_active_requests"] == 1)
        stream.close()
        wait_for(lambda: numbers()["cog_triton_running"] == 0)
        now = numbers()
    assert now['cog_triton_predictions_total{outcome="succeeded"}'] == 1
    assert now['cog_triton_predictions_total{outcome="cancelled"}'] == 1
    assert now['cog_triton_errors_total{code="E1001"}'] == 1
    assert now["cog_triton_prompt_tokens_total"] == 3
    assert now["cog_triton_generated_tokens_total"] >= 6
    assert now["cog_triton_time_to_first_token_seconds_count"] == 2
    assert now["cog_triton_inter_token_latency_seconds_count"] >= 1
    assert any(name.startswith("nv_inference_request_success{") for name in now)


def test_tensorrt_llm_tells_its_kv_cache_and_its_queue(tmp_path):
    """And what COG_TRITON_CONFIG sets reaches it: half of the memory, which the stand-in has 1000 blocks in."""
    arguments = {"kv_cache_free_gpu_mem_fraction": 0.5}
    config = {"instantiate": {"server": {"tensorrt_llm": {"args": arguments}}}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    settings = runner_environment(
        tmp_path, server={"kv_cache_free_gpu_mem_fraction": 0.9}, batch=2, step_seconds=0.01
    )
    settings["COG_TRITON_CONFIG"] = str(tmp_path / "config.yaml")
    with measured(tmp_path, **settings) as (client, numbers):
        streams = [client.events({"prompt": "11", "max_tokens": 3000}) for _ in range(3)]
        for stream in streams:
            assert next(stream).kind == "start"
        wait_for(lambda: numbers()[f"{ENGINE}_queued_requests"] == 1)
        now = numbers()
        assert now[f"{ENGINE}_active_requests"] == 2
        assert now[f"{ENGINE}_kv_cache_blocks"] == 500
        assert 2 <= now[f"{ENGINE}_kv_cache_blocks_used"] < 500
        assert now[f"{ENGINE}_kv_cache_usage"] == now[f"{ENGINE}_kv_cache_blocks_used"] / 500
        for stream in streams:
            stream.close()
        wait_for(lambda: numbers()[f"{ENGINE}_active_requests"] == 0)
        assert numbers()[f"{ENGINE}_kv_cache_blocks_used"] == 0


def test_ctranslate2_tells_its_queue(tmp_path):
    (tmp_path / "config.yaml").write_text(
        f"engine: ctranslate2\nmodel: {PROJECT_ROOT / 'demo/model'}\nparallel_requests: 1\n"
    )
    build(str(tmp_path / "config.yaml"), tmp_path / "engine.tar")
    settings = {"ENGINE_DIR": str(unpacked(tmp_path / "engine.tar", tmp_path)), "END_ID": "-1"}
    with measured(tmp_path, **settings) as (client, numbers):
        streams = [client.events({"prompt": "Once", "max_tokens": 2000}) for _ in range(24)]
        for stream in streams:
            assert next(stream).kind == "start"
        wait_for(lambda: numbers()[f"{ENGINE}_queued_requests"] >= 1)
        now = numbers()
        assert now[f"{ENGINE}_active_requests"] == 1
        assert f"{ENGINE}_kv_cache_blocks" not in now
        for stream in streams:
            stream.close()
        wait_for(lambda: numbers()[f"{ENGINE}_queued_requests"] == 0)
