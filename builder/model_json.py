"""The JSON files of a model: from anybody, so of any size and shape. Standard library only."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from shared.errors import CheckpointInvalid

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES = 256 << 20  # tokenizer.json of a large vocabulary has some 30 MB


def check_size(path: Path) -> None:
    """Raise CheckpointInvalid for more than can be meant: what reads it keeps all of it in memory. Raises
    OSError.
    """
    if path.stat().st_size > MAX_BYTES:
        raise CheckpointInvalid(reason=f"{path.name} has more than {MAX_BYTES} bytes")


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in the file `path`. Raises CheckpointInvalid when there is none."""
    try:
        if not path.is_file():  # reading a pipe would wait
            raise CheckpointInvalid(reason=f"it has no {path.name}")
        check_size(path)
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise CheckpointInvalid(reason=f"{path.name} cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise CheckpointInvalid(reason=f"{path.name} is not JSON, or nested too deeply") from None
    if not isinstance(content, dict):
        raise CheckpointInvalid(reason=f"{path.name} is not a JSON object")
    return content
