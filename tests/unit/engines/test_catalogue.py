"""The catalogue names what exists; adding an engine takes a module and a record."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from runner.engines.catalogue import ENGINES, find_engine
from runner.protocol.engine import FinishReason, Request
from shared.errors import EngineStartFailed
from shared.layout import PROJECT_ROOT
from tests.support.engine_process import driven

EXAMPLE = """
import queue, sys
from runner.engines import catalogue, process
from runner.protocol.engine import FinishReason, Limits, Output

class Echo:
    def __init__(self, engine_dir):
        self.limits = Limits(sequence=16, prompt=8)
        self.requests = queue.SimpleQueue()
    def submit(self, request): self.requests.put(request)
    def cancel(self, request_id): pass
    def shutdown(self): self.requests.put(None)
    def steps(self):
        while request := self.requests.get():
            tokens = request.input_token_ids[: request.max_tokens]
            yield [Output(request.request_id, tokens, FinishReason.LENGTH)]

kind = catalogue.EngineKind(name="echo", implementation="__main__:Echo", honours=frozenset())
catalogue.ENGINES["echo"] = kind
sys.exit(process.main(["--kind", "echo", "--engine-dir", ".", "--socket-fd", sys.argv[1]]))
"""


@pytest.mark.parametrize("name", ENGINES)
def test_every_implementation_is_there(name):
    module, _, kind = ENGINES[name].implementation.partition(":")
    source = find_spec(module).origin
    assert re.search(rf"^class {kind}\b", Path(source).read_text(), re.MULTILINE)


def test_an_unknown_engine_is_refused_with_those_that_there_are():
    with pytest.raises(EngineStartFailed, match='"abacus", only mock, ctranslate2, tensorrt_llm, vllm'):
        find_engine("abacus")


def test_every_engine_of_an_image_is_in_the_catalogue():
    layers = (PROJECT_ROOT / "nix/images.nix").read_text()
    images = {name.replace("-", "_") for name in re.findall(r"parts\.engine-([a-z0-9-]+)", layers)}
    assert images - {"tensorrt_llm_build"} <= set(ENGINES)  # which only builds
    assert {"tensorrt_llm", "ctranslate2", "vllm"} <= images


def test_vllm_is_given_no_seed_that_nobody_asked_for():
    assert "seed" in ENGINES["vllm"].honours
    assert [name for name, kind in ENGINES.items() if kind.seeds] == ["mock", "tensorrt_llm"]


def test_an_engine_of_twenty_lines_is_added_without_touching_another_file(tmp_path):
    (tmp_path / "echo.py").write_text(EXAMPLE)
    with driven(lambda fd: [sys.executable, "echo.py", fd], cwd=tmp_path) as (_, driver):
        next(driver.frames)
        tokens, last, _ = driver.run(Request(1, [5, 6, 7], max_tokens=2))
    assert tokens[1] == [5, 6]
    assert last[1].finish_reason is FinishReason.LENGTH
