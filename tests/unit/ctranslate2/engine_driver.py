"""Drives the engine inside its own environment: one JSON command per line in, one JSON output per line out.

`["submit", {...}]`, `["cancel", id]`, `["shutdown"]`; outputs are `[id, tokens, finish reason, error]`. Ends when
`steps` does.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.engines.catalogue import ENGINES
from runner.engines.checks import check_request
from runner.engines.ctranslate2 import CTranslate2Engine
from runner.protocol.engine import Request, SamplingParameters
from shared.errors import CogTritonError

if TYPE_CHECKING:
    from collections.abc import Sequence


def main() -> None:
    try:
        engine = CTranslate2Engine(Path(sys.argv[1]))
    except CogTritonError as error:
        print(json.dumps(["start failed", str(error)]), flush=True)
        return
    print(json.dumps(["ready", None]), flush=True)
    threading.Thread(target=read_commands, args=(engine,), daemon=True).start()
    for step in engine.steps():
        for output in step:
            failure = str(output.error) if output.error else None
            print(
                json.dumps([output.request_id, list(output.tokens), output.finish_reason.name, failure]),
                flush=True,
            )


def read_commands(engine: CTranslate2Engine) -> None:
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        if command == "submit":
            submit(engine, **arguments[0])
        elif command == "cancel":
            engine.cancel(arguments[0])
        else:
            engine.shutdown()


def submit(engine: CTranslate2Engine, request_id: int, end_ids: Sequence[int] = (), **request: Any) -> None:
    sampling = SamplingParameters(**request.pop("sampling", {}))
    try:
        asked = Request(request_id, end_ids=frozenset(end_ids), sampling=sampling, **request)
        check_request(ENGINES["ctranslate2"].declaration(engine), asked)
        engine.submit(asked)
    except CogTritonError as error:
        print(json.dumps([request_id, [], "NOT_FINISHED", str(error)]), flush=True)


if __name__ == "__main__":
    main()
    os._exit(0)  # as the engine process does: CTranslate2's threads do not survive the interpreter's end
