"""The process in which a model's chat template runs: `python -m runner.text.render_process DIRECTORY`.

It is asked in JSON (runner/limited_process.py). The first byte of an answer says what the others are, in
UTF-8. The first answer says whether there is a template.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from runner.limited_process import begin, questions, tell
from shared.errors import CogTritonError, MessagesInvalid

TEXT, ERROR, NO_TEMPLATE = b"T", b"E", b"N"


def main() -> None:
    """Render until standard input ends."""
    begin()
    from runner.text.chat import ChatTemplate

    try:
        template = ChatTemplate.load(Path(sys.argv[1]))
    except CogTritonError as error:
        tell(ERROR, str(error).encode())
        return
    if template is None:
        tell(NO_TEMPLATE)
        return
    tell(TEXT)
    for body in questions():
        try:
            asked = json.loads(body)
            text = template.render(asked["messages"], asked["arguments"])
        except CogTritonError as error:
            tell(ERROR, str(error).encode())
        except (MemoryError, RecursionError):
            too_much = MessagesInvalid(reason="the model's chat template takes too much memory")
            tell(ERROR, str(too_much).encode())
        else:
            # Half of a surrogate pair is refused where it becomes tokens.
            tell(TEXT, text.encode(errors="surrogatepass"))


if __name__ == "__main__":
    main()
