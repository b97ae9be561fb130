"""The process in which a model's chat template runs: `python -m runner.text.render_process DIRECTORY`.

It reads frames on its standard input and answers each on its standard output, in order: `u32 length`
(little-endian) and that many bytes of JSON. The first answer says whether there is a template.
"""

from __future__ import annotations

import json
import resource
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from shared.errors import CogTritonError, MessagesInvalid

if TYPE_CHECKING:
    from runner.text.chat import ChatTemplate

LENGTH = struct.Struct("<I")
_MAX_MEMORY = 1 << 30


def frame(content: Any) -> bytes:
    """The bytes that are sent through the pipe."""
    body = json.dumps(content).encode()
    return LENGTH.pack(len(body)) + body


def main() -> None:
    """Render until standard input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))
    from runner.text.chat import ChatTemplate

    source, sink = sys.stdin.buffer, sys.stdout.buffer
    template: ChatTemplate | None = None
    try:
        template = ChatTemplate.load(Path(sys.argv[1]))
        _write(sink, {"found": template is not None})
    except CogTritonError as error:
        _write(sink, {"error": str(error)})
    while template is not None and (head := source.read(LENGTH.size)):
        _write(sink, _rendered(template, source.read(*LENGTH.unpack(head))))


def _rendered(template: ChatTemplate, body: bytes) -> dict[str, str]:
    try:
        asked = json.loads(body)
        return {"text": template.render(asked["messages"], asked["arguments"])}
    except CogTritonError as error:
        return {"error": str(error)}
    except (MemoryError, RecursionError):
        return {"error": str(MessagesInvalid(reason="the model's chat template takes too much memory"))}


def _write(sink: BinaryIO, content: dict[str, Any]) -> None:
    sink.write(frame(content))
    sink.flush()


if __name__ == "__main__":
    main()
