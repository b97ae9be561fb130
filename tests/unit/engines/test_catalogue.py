"""The catalogue names what exists; adding an engine takes a module and a record."""

from __future__ import annotations

import re
import sys
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

import pytest

from builder import plan
from cli.main import EngineName
from runner.engines import checks
from runner.engines.catalogue import ENGINES, find_engine
from runner.protocol.engine import FinishReason, Request, SamplingParameters
from shared.config import ENGINES as CONFIGS
from shared.errors import EngineStartFailed
from shared.layout import PROJECT_ROOT
from tests.docs.pages import blocks
from tests.support.engine_process import driven

# What CONTRIBUTING.md adds, and its record.
RECORD = """
if __name__ == "__main__":
    import sys
    from runner.engines import catalogue, process
    kind = catalogue.EngineKind(name="count", implementation="__main__:CountEngine", honours=frozenset())
    catalogue.ENGINES["count"] = kind
    sys.exit(process.main(["--kind", "count", "--engine-dir", ".", "--socket-fd", sys.argv[1]]))
"""


@pytest.mark.parametrize("name", ENGINES)
def test_every_implementation_is_there(name):
    module, _, kind = ENGINES[name].implementation.partition(":")
    source = find_spec(module).origin
    assert re.search(rf"^class {kind}\b", Path(source).read_text(), re.MULTILINE)


@pytest.mark.parametrize("name", ENGINES)
def test_whatever_an_engine_honours_can_be_asked_for(name):
    parameters = {field.name for field in fields(SamplingParameters)}
    assert ENGINES[name].honours <= parameters | set(checks._OPTIONAL_PARTS)


def test_every_engine_has_a_config_a_build_and_an_answer_to_init():
    for names in (CONFIGS, plan._ENGINES, get_args(EngineName)):
        assert set(names) == set(ENGINES)


def test_an_unknown_engine_is_refused_with_those_that_there_are():
    with pytest.raises(EngineStartFailed, match=f'"abacus", only {", ".join(ENGINES)}'):
        find_engine("abacus")


def test_every_engine_of_an_image_is_in_the_catalogue():
    layers = (PROJECT_ROOT / "nix/images.nix").read_text()
    images = {name.replace("-", "_") for name in re.findall(r"parts\.engine-([a-z0-9-]+)", layers)}
    assert images - {"tensorrt_llm_build"} <= set(ENGINES)  # which only builds
    assert {"tensorrt_llm", "ctranslate2", "vllm"} <= images


def test_vllm_is_given_no_seed_that_nobody_asked_for():
    assert "seed" in ENGINES["vllm"].honours
    assert [name for name, kind in ENGINES.items() if kind.seeds] == ["mock", "tensorrt_llm"]


@pytest.mark.parametrize("name", ["ctranslate2", "tensorrt_llm", "vllm"])
def test_no_engine_without_beams_weighs_their_lengths(name):
    assert "length_penalty" not in ENGINES[name].honours


def test_the_engine_that_the_docs_add_works_without_touching_another_file(tmp_path):
    page = (PROJECT_ROOT / "CONTRIBUTING.md").read_text()
    (module,) = [
        block for block in blocks("CONTRIBUTING.md", page) if block.file == "runner/engines/count.py"
    ]
    (tmp_path / "count.py").write_text("\n".join(module.lines) + RECORD)
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine/count.json").write_text('{"last_token_id": 20}')
    with driven(lambda fd: [sys.executable, "count.py", fd], cwd=tmp_path) as (_, driver):
        next(driver.frames)
        tokens, last, _ = driver.run(
            Request(1, [5], max_tokens=3),
            Request(2, [5], max_tokens=9, end_ids=frozenset({8})),
            Request(3, [5], max_tokens=9, stop_words=[[7, 8]]),
            Request(4, [18], max_tokens=9),
        )
    assert tokens == {1: [6, 7, 8], 2: [6, 7], 3: [6, 7, 8], 4: [19, 20]}
    reasons = [last[request].finish_reason for request in sorted(last)]
    assert reasons == [FinishReason.LENGTH, FinishReason.END_ID, FinishReason.STOP_WORDS, FinishReason.END_ID]
