"""The grammars that outputs must follow: what the engine core is told about one, once a process has tried it.

vLLM's core has one library for them. Here it is llguidance: it either follows all of a JSON schema or refuses
it, needs a millisecond for most, and has limits, whereas vLLM's first choice, xgrammar, ignores parts of
schemas.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from shared.errors import StructuredOutputInvalid

if TYPE_CHECKING:
    from pathlib import Path

    from runner.protocol.engine import StructuredOutput

BACKEND = "guidance"
_SECONDS = 5.0
_START_SECONDS = 60.0
_KEPT = 1024  # grammars that need not be tried again
_KEPT_CHARACTERS = 1 << 24
_MAX_TOLD = 300  # characters of the library's message


class Told(NamedTuple):
    """One field of vLLM's `StructuredOutputsParams`."""

    field: str
    text: str


class Grammars:
    """Thread-safe. `close` it."""

    def __init__(self, tokenizer_json: Path, vocabulary: int, end_id: int) -> None:
        """`end_id`: the token that is allowed where a text may end."""
        self._command = [
            *(sys.executable, "-m", "runner.engines.vllm.grammar_check"),
            *(str(tokenizer_json), str(vocabulary), str(end_id)),
        ]
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._known: OrderedDict[tuple[str, str], Told] = OrderedDict()
        self._characters = 0

    def known(self, asked: StructuredOutput) -> Told | None:
        """What `check` returned for it before. Never waits."""
        return self._known.get((asked.kind, asked.text))

    def check(self, asked: StructuredOutput) -> Told:
        """What to tell the engine core. Raises StructuredOutputInvalid."""
        with self._lock:
            told = self.known(asked) or self._try(asked)
            self._keep(asked, told)
            return told

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _try(self, asked: StructuredOutput) -> Told:
        answer = self._ask({"kind": asked.kind, "text": asked.text})
        if answer is None:
            self.close()  # the next one finds another
            raise StructuredOutputInvalid(reason="it is too complex")
        if reason := answer.get("reason"):
            line = " ".join(reason.split()).rstrip(".")
            raise StructuredOutputInvalid(reason=line if len(line) <= _MAX_TOLD else f"{line[:_MAX_TOLD]}...")
        return Told(**answer)

    def _ask(self, question: dict[str, str]) -> dict[str, str] | None:
        """None: the process died of it, or was too slow."""
        process = self._process
        if process is None or process.poll() is not None:
            self.close()
            process = self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            if self._answer(process, _START_SECONDS) is None:
                return None
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(question).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            return None
        return self._answer(process, _SECONDS)

    def _answer(self, process: subprocess.Popen[bytes], seconds: float) -> dict[str, str] | None:
        assert process.stdout is not None
        descriptor = process.stdout.fileno()
        deadline = time.monotonic() + seconds
        line = b""
        while not line.endswith(b"\n"):
            if not select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return None
            if not (more := os.read(descriptor, 1 << 16)):
                return None
            line += more
        answer: dict[str, str] = json.loads(line)
        return answer

    def _keep(self, asked: StructuredOutput, told: Told) -> None:
        key = (asked.kind, asked.text)
        if key in self._known:
            return
        self._known[key] = told
        self._characters += len(asked.text) + len(told.text)
        while len(self._known) > _KEPT or self._characters > _KEPT_CHARACTERS:
            (_, text), old = self._known.popitem(last=False)
            self._characters -= len(text) + len(old.text)
