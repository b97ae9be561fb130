"""What the executor is asked depends on every parameter that the engine says it honours."""

from __future__ import annotations

from dataclasses import replace

from runner.engines.catalogue import ENGINES
from runner.engines.tensorrt_llm.requests import executor_request
from runner.protocol.engine import Request, SamplingParameters
from tests.unit.engines.test_checks import ASKING

BASE = Request(1, [10, 20], 20, sampling=SamplingParameters(top_k=40, top_p=0.5, temperature=0.5))


def test_every_honoured_parameter_reaches_the_executor_and_no_other(executor):
    def differs(request: Request) -> bool:
        return executor_request(executor, request, ()) != executor_request(executor, BASE, ())

    assert not differs(BASE)
    assert not differs(replace(BASE, sampling=replace(BASE.sampling, length_penalty=1.0)))
    asking = {
        name: replace(BASE, sampling=replace(BASE.sampling, **{name: value}))
        for name, value in ASKING.items()
    }
    asking["bad_words"] = replace(BASE, bad_words=[[30]])
    assert {name for name, request in asking.items() if differs(request)} == ENGINES["tensorrt_llm"].honours
