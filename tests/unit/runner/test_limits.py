"""How long prompts and answers may be, by kind of engine."""

from __future__ import annotations

import json

import pytest

from runner.prediction.limits import UNLIMITED, limits_of, lowered
from runner.protocol.engine import Limits
from shared.artifact import EngineDirectory
from shared.errors import EngineArchiveMalformed

BUILD = {"max_seq_len": 4096, "max_num_tokens": 1000, "max_input_len": 500}
OLD_PLUGINS = {"context_fmha": False, "remove_input_padding": True}


@pytest.fixture
def engine(tmp_path):
    def make(config, engine_config) -> EngineDirectory:
        (tmp_path / "engine").mkdir()
        (tmp_path / "config.json").write_text(json.dumps(config))
        (tmp_path / "engine/config.json").write_text(json.dumps(engine_config))
        return EngineDirectory(tmp_path)

    return make


@pytest.mark.parametrize(
    ("kind", "config", "engine_config", "arguments", "limits"),
    [
        ("mock", {"max_seq_len": 64}, {}, {}, Limits(64, 63)),
        ("mock", {}, {}, {}, UNLIMITED),
        ("ctranslate2", {"max_seq_len": None}, {"max_position_embeddings": 2048}, {}, Limits(2048, 2047)),
        ("ctranslate2", {"max_seq_len": 100}, {"max_position_embeddings": 2048}, {}, Limits(100, 99)),
        ("tensorrt_llm", {}, {"build_config": BUILD}, {}, Limits(4096, 1000)),
        ("tensorrt_llm", {}, {"build_config": BUILD}, {"enable_chunked_context": True}, Limits(4096, 4095)),
        ("tensorrt_llm", {}, {"build_config": BUILD}, {"enable_chunked_context": "true"}, Limits(4096, 4095)),
        ("tensorrt_llm", {}, {"build_config": BUILD | {"plugin_config": OLD_PLUGINS}}, {}, Limits(4096, 500)),
        ("tensorrt_llm", {}, {"build_config": BUILD | {"max_seq_len": 9}}, {}, Limits(9, 8)),
    ],
)
def test_the_limits_of_an_engine(engine, kind, config, engine_config, arguments, limits):
    assert limits_of(kind, engine(config, engine_config), arguments) == limits


def test_a_setting_can_only_lower_them():
    assert lowered(Limits(100, 50), 200) == Limits(100, 50)
    assert lowered(Limits(100, 50), 60) == Limits(60, 50)
    assert lowered(Limits(100, 50), 20) == Limits(20, 19)
    assert lowered(Limits(100, 50), None) == Limits(100, 50)


@pytest.mark.parametrize("engine_config", [{}, [], {"build_config": {"max_seq_len": "x"}}])
def test_an_engine_that_does_not_say(engine, engine_config):
    with pytest.raises(EngineArchiveMalformed, match="limits"):
        limits_of("tensorrt_llm", engine({}, engine_config), {})
