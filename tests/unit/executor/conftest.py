from __future__ import annotations

import sys
import threading
from collections import defaultdict
from contextlib import contextmanager

import pytest

from runner.engines.catalogue import ENGINES
from runner.engines.checks import check_request
from runner.protocol.engine import FinishReason
from tests.support.tensorrt_llm_engine import STAND_IN, write_engine


@pytest.fixture
def executor(monkeypatch):
    """The stand-in as `tensorrt_llm.bindings.executor`, while the test runs."""
    monkeypatch.syspath_prepend(str(STAND_IN))
    before = set(sys.modules)
    import tensorrt_llm.bindings.executor as module

    yield module
    for name in set(sys.modules) - before:
        if name.partition(".")[0] == "tensorrt_llm":
            del sys.modules[name]


class Running:
    """An engine whose steps are being taken by a thread."""

    def __init__(self, engine) -> None:
        self.engine = engine
        self.outputs = defaultdict(list)
        self.failure: RuntimeError | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._take)
        self._thread.start()

    def _take(self) -> None:
        try:
            for step in self.engine.steps():
                with self._changed:
                    for output in step:
                        self.outputs[output.request_id].append(output)
                    self._changed.notify_all()
        except RuntimeError as failure:
            self.failure = failure

    def ended(self, request_id: int):
        """The last output of a request, once it is there."""

        def last():
            for output in self.outputs[request_id][-1:]:
                if output.error is not None or output.finish_reason is not FinishReason.NOT_FINISHED:
                    return output
            return None

        with self._changed:
            assert self._changed.wait_for(last, 20), self.outputs
            return last()

    def started(self, request_id: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.outputs[request_id], 20)

    def tokens(self, request_id: int) -> list[int]:
        return [token for output in self.outputs[request_id] for token in output.tokens]

    def submit(self, request) -> None:
        """As the engine process does."""
        check_request(ENGINES["tensorrt_llm"].declaration(self.engine), request)
        self.engine.submit(request)

    def run(self, request) -> tuple[list[int], FinishReason]:
        self.submit(request)
        last = self.ended(request.request_id)
        assert last.error is None, last.error
        return self.tokens(request.request_id), last.finish_reason

    def stop(self) -> None:
        self.engine.shutdown()
        self._thread.join(20)
        assert not self._thread.is_alive()


@pytest.fixture
def running(executor, tmp_path):
    """`running(server=..., step_seconds=...)`: an engine on the stand-in."""
    from runner.engines.tensorrt_llm.engine import TensorRTLLMEngine

    @contextmanager
    def start(**options):
        run = Running(TensorRTLLMEngine(write_engine(tmp_path / "engine", **options)))
        try:
            yield run
        finally:
            run.stop()

    return start
