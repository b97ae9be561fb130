"""Engine directories of the mock."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FIRST, COUNT = 100, 50
CRASH, FAIL, HANG = 7, 8, 9
RATE, DELAY_MS = 10, 11


def write_mock(
    directory: Path,
    *,
    tokens_per_second: float = 0,
    time_to_first_token: float = 0,
    step_seconds: float = 0,
    max_batch_size: int | None = None,
    max_seq_len: int | None = None,
) -> Path:
    """Token i is 100 + i % 50; prompts with 7 crash the process, with 8 fail, with 9 hang; see also RATE and DELAY_MS."""
    (directory / "engine").mkdir(parents=True)
    config = {
        "tokens_per_second": tokens_per_second,
        "time_to_first_token": time_to_first_token,
        "step_seconds": step_seconds,
        "max_batch_size": max_batch_size,
        "max_seq_len": max_seq_len,
    }
    (directory / "config.json").write_text(json.dumps(config))
    script = {
        "first_token_id": FIRST,
        "token_count": COUNT,
        "crash_id": CRASH,
        "error_id": FAIL,
        "hang_id": HANG,
        "tokens_per_second_id": RATE,
        "time_to_first_token_ms_id": DELAY_MS,
    }
    (directory / "engine/mock.json").write_text(json.dumps(script))
    return directory


def mock_tokens(count: int) -> list[int]:
    return [FIRST + position % COUNT for position in range(count)]
