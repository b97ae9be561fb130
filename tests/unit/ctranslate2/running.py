"""An engine that runs in its own environment, and what it answers."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from shared.layout import PROJECT_ROOT
from tests.unit.ctranslate2.checkpoints import convert, engine_python

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = {
    "quantization": "float32",
    "parallel_requests": 2,
    "threads_per_request": 1,
    "max_seq_len": 128,
}


def write_engine(model: Path, engine_dir: Path, **settings: Any) -> Path:
    """An unpacked engine.tar made from the checkpoint `model`."""
    engine_dir.mkdir()
    (engine_dir / "config.json").write_text(json.dumps(SETTINGS | settings))
    child = convert(model, engine_dir / "engine", (SETTINGS | settings)["quantization"])
    assert child.returncode == 0, child.stderr
    return engine_dir


@dataclass
class Answer:
    tokens: list[int] = field(default_factory=list)
    finish_reason: str = "NOT_FINISHED"
    error: str | None = None

    def is_whole(self) -> bool:
        return self.finish_reason != "NOT_FINISHED" or self.error is not None


class RunningEngine:
    """Requests are numbered from 1; answers grow as outputs are read. Ends with its `with` block."""

    def __init__(self, engine_dir: Path) -> None:
        self._process = subprocess.Popen(
            [engine_python(), "-m", "tests.unit.ctranslate2.engine_driver", engine_dir],
            env=os.environ | {"PYTHONPATH": str(PROJECT_ROOT)},
            cwd=PROJECT_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.state, self.start_detail = json.loads(self._process.stdout.readline())
        self.answers: dict[int, Answer] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    def submit(self, prompt: list[int], max_tokens: int, **request: Any) -> int:
        request_id = len(self.answers) + 1
        self.answers[request_id] = Answer()
        self.send(
            "submit",
            {"request_id": request_id, "input_token_ids": prompt, "max_tokens": max_tokens, **request},
        )
        return request_id

    def cancel(self, request_id: int) -> None:
        self.send("cancel", request_id)

    def send(self, *command: object) -> None:
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def read(self) -> bool:
        """Take one output; False at the end of the engine's steps."""
        if not (line := self._process.stdout.readline()):
            return False
        request_id, tokens, finish_reason, error = json.loads(line)
        answer = self.answers[request_id]
        assert not answer.is_whole(), "an output after the last"
        answer.tokens += tokens
        answer.finish_reason, answer.error = finish_reason, error
        return True

    def wait_for_token(self, request_id: int) -> None:
        while not self.answers[request_id].tokens:
            assert self.read()

    def wait(self, request_id: int) -> Answer:
        while not self.answers[request_id].is_whole():
            assert self.read()
        return self.answers[request_id]

    def generate(self, prompt: list[int], max_tokens: int, **request: Any) -> Answer:
        return self.wait(self.submit(prompt, max_tokens, **request))

    def exit_status(self) -> int:
        while self.read():
            pass
        return self._process.wait(timeout=60)
