"""The process in which large bodies are parsed and checked (runner/limited_process.py).

A question is a pickled function, and then the body that it is called with. The first byte of an answer says
what the others are: the pickled result, or what makes the error that the function raised.
"""

from __future__ import annotations

import gc
import pickle
from functools import partial
from io import BytesIO

from runner.limited_process import begin, questions, tell
from shared.errors import CogTritonError

PARSED, REFUSED, UNREADABLE = b"P", b"R", b"U"


def main() -> None:
    """Parse until standard input ends."""
    begin()
    import runner.front.cog.reading
    import runner.front.openai.wanted  # noqa: F401 - before the first question, which must not wait for it

    gc.freeze()
    gc.disable()  # it would look at all values again and again while they are made
    tell()
    for question in questions():
        tell(*_answer(question))
        gc.collect()


def _answer(question: bytes) -> tuple[bytes, ...]:
    source = BytesIO(question)
    parse = pickle.load(source)  # noqa: S301 - the front's, not the sender's
    try:
        return PARSED, pickle.dumps(parse(source.read()), pickle.HIGHEST_PROTOCOL)
    except CogTritonError as error:
        return REFUSED, pickle.dumps(partial(type(error), **error.details))
    except (MemoryError, RecursionError):
        return (UNREADABLE,)


if __name__ == "__main__":
    main()
