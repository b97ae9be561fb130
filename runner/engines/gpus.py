"""Which GPUs the engine sees: Triton, which hosts it, sees none.

On each GPU that it sees, Triton makes a CUDA context (582 MiB on an H200), and computes nothing there.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_OF_THE_ENGINE = "COG_TRITON_ENGINE_GPUS"


def hide_gpus(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for Triton: without GPUs, and with what `show_gpus` needs."""
    return {**environment, _VISIBLE: "", _OF_THE_ENGINE: json.dumps(environment.get(_VISIBLE))}


def show_gpus(environment: MutableMapping[str, str]) -> None:
    """In the engine process: undo `hide_gpus`, before anything calls CUDA. A second call does nothing."""
    if (told := environment.pop(_OF_THE_ENGINE, None)) is None:
        return
    del environment[_VISIBLE]
    if (visible := json.loads(told)) is not None:
        environment[_VISIBLE] = visible
