"""vLLM on two hosts by its own multi-node mode, in a whole runner: the real vLLM, compiled for CPUs."""

from __future__ import annotations

import json

import pytest
from tokenizers import Tokenizer

from runner.engines.vllm.compile_cache import MADE_FOR
from shared import VERSION
from shared.artifact import Manifest
from shared.layout import Layout
from tests.hosts.runner import TwoHosts
from tests.reference.llama import Reference
from tests.support.processes import MARK
from tests.vllm.conftest import ENVIRONMENT, PYTHON, START_SECONDS, write_engine
from tests.vllm.model import MODEL

PROMPT = "Once upon a time"
TOKENS = 20


@pytest.fixture
def engine(tmp_path):
    arguments = {"enforce_eager": True, "kv_cache_memory_bytes": 256 << 20, "max_num_seqs": 16}
    made = write_engine(tmp_path / "engine", tensor_parallel_size=2, engine_args=arguments)
    manifest = Manifest(
        engine="vllm", model="demo", config_digest="0" * 64, cog_triton_version=VERSION, files=(), ranks=2
    )
    (made / "manifest.json").write_bytes(manifest.model_dump_json().encode())
    return made


@pytest.fixture
def settings(tmp_path, mark):
    home = tmp_path / "home"
    (home / "engines").mkdir(parents=True)
    (home / "engines/vllm").symlink_to(PYTHON.parents[1])
    for part in ("triton", "bridge"):
        (home / part).symlink_to(Layout.current().home / part)
    names = f"{MARK},TORCHDYNAMO_DISABLE"
    return {MARK: mark, "ENGINE_ENVIRONMENT": names, "COG_TRITON_HOME": str(home), **ENVIRONMENT}


@pytest.fixture
def expected():
    """The text that follows the prompt."""
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    end_id = json.loads((MODEL / "generation_config.json").read_text())["eos_token_id"]
    return tokenizer.decode(Reference(MODEL).greedy(tokenizer.encode(PROMPT).ids, TOKENS, {end_id}))


def test_two_nodes_answer_as_one_and_again_after_the_network_was_cut(
    tmp_path, namespaces, engine, settings, expected
):
    hosts = TwoHosts(namespaces, tmp_path, engine)
    caches = [tmp_path / "compiled-by-first", tmp_path / "compiled-by-second"]
    serving, joining = (settings | {"COMPILE_CACHE": str(cache)} for cache in caches)
    with hosts.serving(**serving), hosts.joining(**joining) as second:
        hosts.wait_ready(START_SECONDS)
        for cache in caches:
            (made_for,) = cache.glob(f"*/{MADE_FOR}")
            assert json.loads(made_for.read_text())["hosts"] == 2
        assert hosts.by_cog(PROMPT, TOKENS) == expected
        assert hosts.by_openai(PROMPT, TOKENS) == expected
        hosts.lose(PROMPT, 200, hosts.second.cut)
        hosts.second.mend()
        hosts.wait_ready(START_SECONDS)
        assert hosts.by_cog(PROMPT, TOKENS) == expected
        assert second.poll() is None
