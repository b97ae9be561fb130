"""Why a file or a text cannot be read, in our words. Standard library only: engine processes import it."""

from __future__ import annotations

from json import JSONDecodeError

FORBIDDEN = "this user has no permission to read it"


def reason_of(error: OSError) -> str:
    """The end of a sentence about a file."""
    return FORBIDDEN if isinstance(error, PermissionError) else f'the system says "{error.strerror}"'


def why_no_json(error: ValueError | RecursionError) -> str:
    """What is wrong with a text that `json.loads` or `orjson.loads` refuses, to follow its name or "it".

    For what is more than it takes, Python would name its own limits and functions.
    """
    match error:
        case RecursionError() | JSONDecodeError(msg="depth limit exceeded"):  # orjson's
            return "is nested too deeply"
        case JSONDecodeError() if not error.msg.startswith("str is not valid UTF-8"):  # orjson's, too
            return f"is not JSON: {error}"
        case UnicodeDecodeError() | JSONDecodeError():
            return "is not UTF-8"
        case _:
            return "has a number with too many digits"
